/* The header of safetensors files. In: a file, or tensors to be written. Out: what the file has, or the
 * header's bytes. Guaranteed: whatever the bytes are, nothing outside of them is read, and what contradicts
 * itself is an error: a name that comes twice, a tensor whose bytes are not those of its shape, gaps,
 * overlaps, a file that ends early or late. */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_HEADER = 100000000 }; /* bytes, as the format's own readers have it */

static const struct {
    const char *word;
    int bytes, dtype; /* of an element; cell_dtype, or -1 */
} file_types[] = {
    { "F32", 4, CELL_F32 },
    { "BF16", 2, CELL_BF16 },
    { "F16", 2, CELL_F16 },
    { "F64", 8, CELL_F64 },
    { "I32", 4, CELL_I32 },
    { "BOOL", 1, CELL_BOOL },
    { "I64", 8, -1 },
    { "I16", 2, -1 },
    { "I8", 1, -1 },
    { "U64", 8, -1 },
    { "U32", 4, -1 },
    { "U16", 2, -1 },
    { "U8", 1, -1 },
    { "F8_E4M3", 1, CELL_E4M3 },
    { "F8_E5M2", 1, CELL_E5M2 },
    { "C64", 8, -1 },
};
enum { N_FILE_TYPES = sizeof file_types / sizeof *file_types };

const char *cell_file_type(cell_dtype dtype)
{
    for (int i = 0; i < N_FILE_TYPES; i++)
        if (file_types[i].dtype == (int)dtype)
            return file_types[i].word;
    return NULL;
}

int cell_type_of_file(const char *word)
{
    for (int i = 0; i < N_FILE_TYPES; i++)
        if (strcmp(file_types[i].word, word) == 0)
            return file_types[i].dtype;
    return -1;
}

int cell_is_utf8(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        int more = *at < 0x80 ? 0 : *at >= 0xc2 && *at < 0xe0 ? 1 : *at >= 0xe0 && *at < 0xf0 ? 2 : *at >= 0xf0 && *at < 0xf5 ? 3 : -1;
        /* The second byte's range: no longer form of a character, no surrogate, nothing behind 0x10ffff. */
        unsigned low = *at == 0xe0 ? 0xa0 : *at == 0xf0 ? 0x90 : 0x80;
        unsigned high = *at == 0xed ? 0x9f : *at == 0xf4 ? 0x8f : 0xbf;
        if (more < 0 || (more > 0 && (at[1] < low || at[1] > high)))
            return 0;
        for (int i = 2; i <= more; i++)
            if (at[i] < 0x80 || at[i] > 0xbf)
                return 0;
        at += 1 + more;
    }
    return 1;
}

/* ---- reading JSON, as much as a header has */

typedef struct Reader {
    const char *at, *end, *path;
    cell_file_header *header;
    cell_error *err;
} Reader;

static cell_status bad(Reader *r, const char *what)
{
    cell_fail(r->err, CELL_BAD_ARGUMENT, "%s is no safetensors file: %s", r->path, what);
    return CELL_BAD_ARGUMENT;
}

static cell_status no_memory(Reader *r)
{
    cell_fail(r->err, CELL_OUT_OF_MEMORY, "out of memory: the header of %s", r->path);
    return CELL_OUT_OF_MEMORY;
}

static void skip_blank(Reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

/* The next character behind blanks, if it is this one. */
static int take(Reader *r, char wanted)
{
    skip_blank(r);
    if (r->at == r->end || *r->at != wanted)
        return 0;
    r->at++;
    return 1;
}

static int hex_of(const char *at, unsigned *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return 0;
        *value = *value * 16 + digit;
    }
    return 1;
}

static char *put_utf8(char *to, unsigned code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 63));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 63));
        *to++ = (char)(0x80 | (code >> 6 & 63));
        *to++ = (char)(0x80 | (code & 63));
    }
    return to;
}

/* What stands behind \u: one code of 16 bits, or the two of a character beyond them. NULL: neither. */
static char *read_code(Reader *r, char *to)
{
    unsigned code, low;
    if (r->end - r->at < 4 || !hex_of(r->at, &code))
        return NULL;
    r->at += 4;
    if (code >= 0xd800 && code < 0xdc00) {
        if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u' || !hex_of(r->at + 2, &low) ||
            low < 0xdc00 || low > 0xdfff)
            return NULL;
        r->at += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return NULL;
    }
    return code ? put_utf8(to, code) : NULL; /* a NUL would end the name */
}

/* A string, allocated. An escape is never shorter than what it stands for. */
static cell_status read_string(Reader *r, char **string)
{
    if (!take(r, '"'))
        return bad(r, "its header has no string where one must be");
    const char *close = r->at;
    while (close < r->end && *close != '"')
        close += *close == '\\' ? 2 : 1;
    if (close >= r->end)
        return bad(r, "a string of its header does not end");
    char *to = *string = malloc((size_t)(close - r->at) + 1);
    if (!to)
        return no_memory(r);
    while (r->at < close && to) {
        static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
        char c = *r->at++;
        if ((unsigned char)c < 0x20) {
            to = NULL;
        } else if (c != '\\') {
            *to++ = c;
        } else if (*r->at == 'u') {
            r->at++;
            to = read_code(r, to);
        } else {
            const char *is = memchr(escapes, *r->at, sizeof escapes - 1);
            to = is && (is - escapes) % 2 == 0 ? (*to = is[1], to + 1) : NULL;
            r->at++;
        }
    }
    if (!to || r->at != close)
        return bad(r, "a string of its header is none of JSON");
    *to = 0;
    r->at = close + 1;
    return cell_is_utf8(*string) ? CELL_OK : bad(r, "a string of its header is no UTF-8");
}

/* A whole number from 0 to 2^63 - 1. */
static cell_status read_number(Reader *r, uint64_t *number)
{
    skip_blank(r);
    const char *first = r->at;
    for (*number = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        unsigned digit = (unsigned)(*r->at - '0');
        if (*number > ((uint64_t)INT64_MAX - digit) / 10)
            return bad(r, "a number of its header is too large");
        *number = *number * 10 + digit;
    }
    if (r->at == first || (r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E')))
        return bad(r, "its header has no whole number where one must be");
    return CELL_OK;
}

/* "[1, 2]": *n numbers, at most `room`. */
static cell_status read_numbers(Reader *r, uint64_t *numbers, int room, int *n)
{
    *n = 0;
    if (!take(r, '['))
        return bad(r, "its header has no list where one must be");
    if (take(r, ']'))
        return CELL_OK;
    do {
        if (*n == room)
            return bad(r, "a tensor has more axes than 8, or other than two offsets");
        cell_status status = read_number(r, &numbers[(*n)++]);
        if (status != CELL_OK)
            return status;
    } while (take(r, ','));
    return take(r, ']') ? CELL_OK : bad(r, "a list of its header does not end");
}

/* ---- what the header says */

/* Elements of an array of which there is room for *room; its place for one more, which is all zero. */
static void *one_more(void **array, int n, int *room, size_t each)
{
    if (n == *room) {
        int more = *room ? 2 * *room : 16;
        void *grown = realloc(*array, (size_t)more * each);
        if (!grown)
            return NULL;
        *array = grown;
        *room = more;
    }
    return memset((char *)*array + (size_t)n * each, 0, each);
}

static cell_status read_metadata(Reader *r)
{
    cell_file_header *h = r->header;
    if (!take(r, '{'))
        return bad(r, "its __metadata__ is no object");
    if (take(r, '}'))
        return CELL_OK;
    do {
        cell_text_pair *pair = one_more((void **)&h->texts, h->n_texts, &h->room_texts, sizeof *pair);
        if (!pair)
            return no_memory(r);
        h->n_texts++;
        cell_status status = read_string(r, &pair->key);
        if (status == CELL_OK && !take(r, ':'))
            status = bad(r, "a key of its __metadata__ has no value");
        if (status == CELL_OK)
            status = read_string(r, &pair->value);
        for (int i = 0; status == CELL_OK && i + 1 < h->n_texts; i++)
            if (strcmp(h->texts[i].key, h->texts[h->n_texts - 1].key) == 0)
                status = bad(r, "a key of its __metadata__ comes twice");
        if (status != CELL_OK)
            return status;
    } while (take(r, ','));
    return take(r, '}') ? CELL_OK : bad(r, "its __metadata__ does not end");
}

static cell_status read_member(Reader *r, cell_stored *t, int *seen)
{
    char *key = NULL;
    uint64_t numbers[CELL_WEIGHT_RANK];
    int n;
    cell_status status = read_string(r, &key);
    if (status == CELL_OK && !take(r, ':'))
        status = bad(r, "a member of a tensor has no value");
    int which = status != CELL_OK                  ? -1
                : strcmp(key, "dtype") == 0        ? 0
                : strcmp(key, "shape") == 0        ? 1
                : strcmp(key, "data_offsets") == 0 ? 2
                                                   : -1;
    free(key);
    if (status != CELL_OK)
        return status;
    if (which < 0 || (*seen & 1 << which))
        return bad(r, "a tensor has other members than dtype, shape and data_offsets, each once");
    *seen |= 1 << which;
    if (which == 0)
        return read_string(r, &t->dtype);
    status = read_numbers(r, numbers, which == 1 ? CELL_WEIGHT_RANK : 2, &n);
    if (status != CELL_OK)
        return status;
    if (which == 2) {
        if (n != 2)
            return bad(r, "a tensor has other than two offsets");
        t->begin = numbers[0], t->end = numbers[1];
        return CELL_OK;
    }
    t->rank = n;
    for (int i = 0; i < n; i++)
        t->shape[i] = (int64_t)numbers[i];
    return CELL_OK;
}

static cell_status read_tensor(Reader *r, cell_stored *t)
{
    int seen = 0;
    if (!take(r, '{'))
        return bad(r, "a tensor is no object");
    do {
        cell_status status = read_member(r, t, &seen);
        if (status != CELL_OK)
            return status;
    } while (take(r, ','));
    if (seen != 7)
        return bad(r, "a tensor has not dtype, shape and data_offsets");
    return take(r, '}') ? CELL_OK : bad(r, "a tensor does not end");
}

static cell_status read_entry(Reader *r, int *metadata)
{
    cell_file_header *h = r->header;
    char *name = NULL;
    cell_status status = read_string(r, &name);
    if (status == CELL_OK && !take(r, ':'))
        status = bad(r, "a name has no tensor");
    if (status == CELL_OK && strcmp(name, "__metadata__") == 0) {
        free(name);
        return (*metadata)++ ? bad(r, "it has two __metadata__") : read_metadata(r);
    }
    cell_stored *t = NULL;
    if (status == CELL_OK && !(t = one_more((void **)&h->tensors, h->n_tensors, &h->room_tensors, sizeof *t)))
        status = no_memory(r);
    if (status != CELL_OK) {
        free(name);
        return status;
    }
    h->n_tensors++;
    t->name = name;
    return read_tensor(r, t);
}

static int by_place(const void *a, const void *b)
{
    const cell_stored *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const cell_stored *)a)->name, ((const cell_stored *)b)->name);
}

/* Has the tensor the bytes that its shape takes? Of a type that is not known here any number will do. */
static int has_its_bytes(const cell_stored *t)
{
    uint64_t bytes = 0;
    for (int i = 0; i < N_FILE_TYPES; i++)
        if (strcmp(file_types[i].word, t->dtype) == 0)
            bytes = (uint64_t)file_types[i].bytes;
    if (!bytes)
        return t->begin <= t->end;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] && bytes > (uint64_t)INT64_MAX / (uint64_t)t->shape[i])
            return 0;
        bytes *= (uint64_t)t->shape[i];
    }
    return t->begin <= t->end && t->end - t->begin == bytes;
}

static cell_status check(Reader *r, uint64_t data_bytes)
{
    cell_file_header *h = r->header;
    if (h->n_tensors)
        qsort(h->tensors, (size_t)h->n_tensors, sizeof *h->tensors, by_place);
    uint64_t at = 0;
    for (int i = 0; i < h->n_tensors; at = h->tensors[i++].end) {
        if (!has_its_bytes(&h->tensors[i]))
            return bad(r, "the bytes of a tensor are not those that its shape and type take");
        if (h->tensors[i].begin != at)
            return bad(r, "its tensors overlap, or there are gaps between them");
    }
    if (at != data_bytes)
        return bad(r, at > data_bytes ? "it is cut: tensors lie behind its end"
                                      : "it has bytes behind the last tensor");
    if (h->n_tensors)
        qsort(h->tensors, (size_t)h->n_tensors, sizeof *h->tensors, by_name);
    for (int i = 1; i < h->n_tensors; i++)
        if (strcmp(h->tensors[i - 1].name, h->tensors[i].name) == 0)
            return bad(r, "a name comes twice");
    return CELL_OK;
}

static cell_status read_header(Reader *r, uint64_t data_bytes)
{
    int metadata = 0;
    if (r->at == r->end || *r->at != '{')
        return bad(r, "its header does not begin with {");
    r->at++;
    if (!take(r, '}')) {
        do {
            cell_status status = read_entry(r, &metadata);
            if (status != CELL_OK)
                return status;
        } while (take(r, ','));
        if (!take(r, '}'))
            return bad(r, "its header does not end");
    }
    skip_blank(r);
    return r->at == r->end ? check(r, data_bytes) : bad(r, "there is more behind its header");
}

cell_status cell_header_read(FILE *file, const char *path, cell_file_header *header, cell_error *err)
{
    unsigned char length[8];
    uint64_t bytes = 0;
    Reader r = { .path = path, .header = header, .err = err };
    memset(header, 0, sizeof *header);
    if (fseek(file, 0, SEEK_END) != 0)
        return bad(&r, "it cannot be read from any place");
    off_t end = ftello(file);
    if (end < 0 || fseek(file, 0, SEEK_SET) != 0 || fread(length, 1, sizeof length, file) != sizeof length)
        return bad(&r, "it has less than 8 bytes");
    for (int i = 0; i < 8; i++)
        bytes |= (uint64_t)length[i] << 8 * i;
    if (bytes > MOST_HEADER || bytes > (uint64_t)end - 8)
        return bad(&r, "its header is longer than the file, or than 100 MB");
    char *text = malloc((size_t)bytes + 1);
    if (!text)
        return no_memory(&r);
    r.at = text, r.end = text + bytes;
    header->data = 8 + bytes;
    cell_status status = fread(text, 1, (size_t)bytes, file) == bytes
                             ? read_header(&r, (uint64_t)end - 8 - bytes)
                             : bad(&r, "it ends in its header");
    free(text);
    return status;
}

void cell_header_free(cell_file_header *header)
{
    for (int i = 0; i < header->n_tensors; i++) {
        free(header->tensors[i].name);
        free(header->tensors[i].dtype);
    }
    for (int i = 0; i < header->n_texts; i++) {
        free(header->texts[i].key);
        free(header->texts[i].value);
    }
    free(header->tensors);
    free(header->texts);
    memset(header, 0, sizeof *header);
}

/* ---- writing */

/* Into the file, or, where it is NULL, counted only. */
typedef struct Writer {
    FILE *file;
    uint64_t bytes;
} Writer;

static void put(Writer *w, const char *text)
{
    if (w->file)
        fputs(text, w->file);
    w->bytes += strlen(text);
}

static void put_number(Writer *w, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    put(w, text);
}

static void put_string(Writer *w, const char *string)
{
    put(w, "\"");
    for (const char *at = string; *at; at++) {
        char text[8] = { *at, 0 };
        if (*at == '"' || *at == '\\')
            snprintf(text, sizeof text, "\\%c", *at);
        else if ((unsigned char)*at < 0x20)
            snprintf(text, sizeof text, "\\u%04x", (unsigned)*at);
        put(w, text);
    }
    put(w, "\"");
}

static uint64_t bytes_of(const cell_weight *weight)
{
    uint64_t bytes = cell_dtype_bytes(weight->dtype);
    for (int i = 0; i < weight->rank; i++)
        bytes *= (uint64_t)weight->shape[i];
    return bytes;
}

static void put_header(Writer *w, const cell_weight *list, int n, const char *const *metadata)
{
    uint64_t at = 0;
    put(w, "{");
    if (metadata && *metadata) {
        put(w, "\"__metadata__\":{");
        for (int i = 0; metadata[i]; i += 2) {
            put(w, i ? "," : "");
            put_string(w, metadata[i]);
            put(w, ":");
            put_string(w, metadata[i + 1]);
        }
        put(w, n ? "}," : "}");
    }
    for (int i = 0; i < n; i++) {
        put(w, i ? "," : "");
        put_string(w, list[i].name);
        put(w, ":{\"dtype\":\"");
        put(w, cell_file_type(list[i].dtype));
        put(w, "\",\"shape\":[");
        for (int k = 0; k < list[i].rank; k++) {
            put(w, k ? "," : "");
            put_number(w, (uint64_t)list[i].shape[k]);
        }
        put(w, "],\"data_offsets\":[");
        put_number(w, at);
        put(w, ",");
        put_number(w, at += bytes_of(&list[i]));
        put(w, "]}");
    }
    put(w, "}");
    while (w->bytes % 8)
        put(w, " ");
}

cell_status cell_header_write(FILE *file, const char *path, const cell_weight *list, int n,
                              const char *const *metadata, cell_error *err)
{
    unsigned char length[8];
    Writer count = { NULL, 0 }, w = { file, 0 };
    put_header(&count, list, n, metadata);
    if (count.bytes > MOST_HEADER)
        return cell_fail(err, CELL_BAD_SIZE, "%s: its header would be longer than 100 MB", path);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(count.bytes >> 8 * i);
    if (fwrite(length, 1, sizeof length, file) == sizeof length)
        put_header(&w, list, n, metadata);
    return ferror(file) ? cell_fail(err, CELL_BACKEND_FAILED, "%s cannot be written", path) : CELL_OK;
}
