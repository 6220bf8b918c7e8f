/* image.h - the image of an output, and what it is called. */
#ifndef HUTCH_CELL_IMAGE_H
#define HUTCH_CELL_IMAGE_H

struct cJSON;

/* The image of an output, if it has one: its MIME type (static) and its data, which stays the output's: base64, or
 * text for SVG. The first of png, jpeg, gif, webp, svg. NULL: none. */
const char *hutch_cell_image(const struct cJSON *output, const char **ret_data);
/* "figure-3.png": what texts call the @n-th output with an image, from 1, and what front ends save it as. */
#define CELL_IMAGE_NAME_SIZE 40
void hutch_cell_image_name(char name[CELL_IMAGE_NAME_SIZE], unsigned n, const char *mime);
/* "640x480, " from the header of a PNG; "" of anything else. */
#define CELL_IMAGE_SIDES_SIZE 40
void hutch_cell_image_sides(char buf[CELL_IMAGE_SIDES_SIZE], const char *mime, const char *base64);

#endif
