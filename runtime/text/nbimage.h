/* nbimage.h - the image that an output of nbformat shows, and what it is called. */
#ifndef HUTCH_TEXT_NBIMAGE_H
#define HUTCH_TEXT_NBIMAGE_H

struct cJSON;

/* The image of an output, if it has one: its MIME type (static) and its data, which stays the output's: base64, or
 * text for SVG. The first of png, jpeg, gif, webp, svg. NULL: none. */
const char *hutch_nbimage_find(const struct cJSON *output, const char **ret_data);
/* "figure-3.png": what texts call the @n-th output with an image, from 1, and what front ends save it as. */
#define NBIMAGE_NAME_SIZE 40
void hutch_nbimage_name(char name[NBIMAGE_NAME_SIZE], unsigned n, const char *mime);
/* "640x480, " from the header of a PNG; "" of anything else. */
#define NBIMAGE_SIDES_SIZE 40
void hutch_nbimage_sides(char buf[NBIMAGE_SIDES_SIZE], const char *mime, const char *base64);

#endif
