#include "runtime/data/mime.h"

#include "sandbox/fd.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

/* What programs for data, documents, pictures and code write; sorted by use, not by need: the table is short. */
static const struct { const char *extension, *mime; } by_extension[] = {
    { "csv", "text/csv" },
    { "tsv", "text/tab-separated-values" },
    { "txt", "text/plain" },
    { "log", "text/plain" },
    { "md", "text/markdown" },
    { "rst", "text/x-rst" },
    { "json", "application/json" },
    { "jsonl", "application/jsonl" },
    { "ndjson", "application/x-ndjson" },
    { "geojson", "application/geo+json" },
    { "ipynb", "application/x-ipynb+json" },
    { "xml", "application/xml" },
    { "kml", "application/vnd.google-earth.kml+xml" },
    { "html", "text/html" },
    { "htm", "text/html" },
    { "css", "text/css" },
    { "js", "text/javascript" },
    { "mjs", "text/javascript" },
    { "ts", "text/x-typescript" },
    { "yaml", "application/yaml" },
    { "yml", "application/yaml" },
    { "toml", "application/toml" },
    { "ini", "text/plain" },
    { "cfg", "text/plain" },
    { "tex", "application/x-tex" },
    { "bib", "application/x-bibtex" },
    { "sql", "application/sql" },
    { "ics", "text/calendar" },
    { "vcf", "text/vcard" },
    { "eml", "message/rfc822" },
    { "py", "text/x-python" },
    { "sh", "text/x-shellscript" },
    { "r", "text/x-r" },
    { "c", "text/x-c" },
    { "h", "text/x-c" },
    { "cc", "text/x-c++" },
    { "cpp", "text/x-c++" },
    { "java", "text/x-java" },
    { "go", "text/x-go" },
    { "rs", "text/x-rust" },
    { "png", "image/png" },
    { "jpg", "image/jpeg" },
    { "jpeg", "image/jpeg" },
    { "gif", "image/gif" },
    { "svg", "image/svg+xml" },
    { "webp", "image/webp" },
    { "avif", "image/avif" },
    { "bmp", "image/bmp" },
    { "tif", "image/tiff" },
    { "tiff", "image/tiff" },
    { "ico", "image/vnd.microsoft.icon" },
    { "eps", "application/postscript" },
    { "ps", "application/postscript" },
    { "pdf", "application/pdf" },
    { "rtf", "application/rtf" },
    { "epub", "application/epub+zip" },
    { "doc", "application/msword" },
    { "docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document" },
    { "xls", "application/vnd.ms-excel" },
    { "xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
    { "xlsm", "application/vnd.ms-excel.sheet.macroEnabled.12" },
    { "ppt", "application/vnd.ms-powerpoint" },
    { "pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation" },
    { "odt", "application/vnd.oasis.opendocument.text" },
    { "ods", "application/vnd.oasis.opendocument.spreadsheet" },
    { "odp", "application/vnd.oasis.opendocument.presentation" },
    { "parquet", "application/vnd.apache.parquet" },
    { "arrow", "application/vnd.apache.arrow.file" },
    { "feather", "application/vnd.apache.arrow.file" },
    { "npy", "application/x-npy" },
    { "npz", "application/x-npz" },
    { "pkl", "application/x-pickle" },
    { "pickle", "application/x-pickle" },
    { "h5", "application/x-hdf5" },
    { "hdf5", "application/x-hdf5" },
    { "nc", "application/x-netcdf" },
    { "mat", "application/x-matlab-data" },
    { "db", "application/vnd.sqlite3" },
    { "sqlite", "application/vnd.sqlite3" },
    { "sqlite3", "application/vnd.sqlite3" },
    { "zip", "application/zip" },
    { "whl", "application/zip" },
    { "jar", "application/java-archive" },
    { "tar", "application/x-tar" },
    { "gz", "application/gzip" },
    { "tgz", "application/gzip" },
    { "bz2", "application/x-bzip2" },
    { "xz", "application/x-xz" },
    { "zst", "application/zstd" },
    { "7z", "application/x-7z-compressed" },
    { "mp3", "audio/mpeg" },
    { "wav", "audio/wav" },
    { "ogg", "audio/ogg" },
    { "flac", "audio/flac" },
    { "m4a", "audio/mp4" },
    { "mp4", "video/mp4" },
    { "webm", "video/webm" },
    { "mkv", "video/x-matroska" },
    { "avi", "video/x-msvideo" },
    { "mov", "video/quicktime" },
    { "ttf", "font/ttf" },
    { "otf", "font/otf" },
    { "woff", "font/woff" },
    { "woff2", "font/woff2" },
    { "wasm", "application/wasm" },
    { "so", "application/x-sharedlib" },
    { "bin", "application/octet-stream" },
};

#define MAGIC(at, text, mime) { at, sizeof(text) - 1, text, mime }
static const struct { size_t at, len; const char *bytes, *mime; } by_magic[] = {
    MAGIC(0, "\x89PNG\r\n\x1a\n", "image/png"),
    MAGIC(0, "\xff\xd8\xff", "image/jpeg"),
    MAGIC(0, "GIF87a", "image/gif"),
    MAGIC(0, "GIF89a", "image/gif"),
    MAGIC(8, "WEBPVP8", "image/webp"),
    MAGIC(0, "II*\0", "image/tiff"),
    MAGIC(0, "MM\0*", "image/tiff"),
    MAGIC(0, "%PDF-", "application/pdf"),
    MAGIC(0, "%!PS-", "application/postscript"),
    MAGIC(0, "PK\x03\x04", "application/zip"),
    MAGIC(0, "PK\x05\x06", "application/zip"), /* an empty archive */
    MAGIC(0, "\x1f\x8b\x08", "application/gzip"),
    MAGIC(0, "BZh", "application/x-bzip2"),
    MAGIC(0, "\xfd" "7zXZ\0", "application/x-xz"),
    MAGIC(0, "\x28\xb5\x2f\xfd", "application/zstd"),
    MAGIC(257, "ustar", "application/x-tar"),
    MAGIC(0, "\x7f" "ELF", "application/x-elf"),
    MAGIC(0, "SQLite format 3\0", "application/vnd.sqlite3"),
    MAGIC(0, "\x89HDF\r\n\x1a\n", "application/x-hdf5"),
    MAGIC(0, "PAR1", "application/vnd.apache.parquet"),
    MAGIC(0, "ARROW1", "application/vnd.apache.arrow.file"),
    MAGIC(0, "\x93NUMPY", "application/x-npy"),
    MAGIC(0, "#!", "text/x-script"),
    MAGIC(0, "<?xml", "application/xml"),
    MAGIC(0, "<!DOCTYPE html", "text/html"),
    MAGIC(0, "<html", "text/html"),
    MAGIC(0, "<svg", "image/svg+xml"),
};

const char *hutch_mime_by_name(const char *path)
{
    const char *base = strrchr(path, '/');
    const char *dot;

    base = base ? base + 1 : path;
    dot = strrchr(base, '.');
    if (dot == NULL || dot == base) /* ".csv" is a hidden file without an extension */
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(by_extension); i++)
        if (strcasecmp(dot + 1, by_extension[i].extension) == 0)
            return by_extension[i].mime;
    return NULL;
}

/* Text: printable, UTF-8 by its lead and continuation bytes. A character cut off by the end of @head is fine unless
 * that is the end of the file. */
static bool is_text(const uint8_t *p, size_t len, bool is_whole)
{
    size_t i = 0;

    while (i < len) {
        uint8_t c = p[i++];
        int more;

        if (c < 0x20 && !(c >= '\t' && c <= '\r') && c != 0x1b)
            return false;
        if (c < 0x80) {
            if (c == 0x7f)
                return false;
            continue;
        }
        if (c < 0xc2 || c > 0xf4)
            return false;
        more = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        for (; more > 0; more--, i++) {
            if (i == len)
                return !is_whole;
            if ((p[i] & 0xc0) != 0x80)
                return false;
        }
    }
    return true;
}

const char *hutch_mime_by_content(const void *head, size_t len, bool is_whole)
{
    const uint8_t *p = head;

    if (len > MIME_SNIFF_LEN) {
        len = MIME_SNIFF_LEN;
        is_whole = false;
    }
    if (len == 0)
        return "application/x-empty";
    for (size_t i = 0; i < ARRAY_SIZE(by_magic); i++)
        if (len >= by_magic[i].at + by_magic[i].len &&
            memcmp(p + by_magic[i].at, by_magic[i].bytes, by_magic[i].len) == 0)
            return by_magic[i].mime;
    return is_text(p, len, is_whole) ? "text/plain" : "application/octet-stream";
}
