/* page.h - `hutch serve --ui`: a page for browsers, below /ui/, which uses the native API as any client does. */
#ifndef HUTCH_UI_PAGE_H
#define HUTCH_UI_PAGE_H

#include "runtime/gateway/format.h"

extern const struct format hutch_ui_page; /* a format with routes and nothing else */

#endif
