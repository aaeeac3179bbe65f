// SPDX-License-Identifier: Apache-2.0
// quantize-random FROM TO fp8|int8|int4: a checkpoint like FROM, which tools/make-checkpoint wrote,
// but with random codes in place of its linear layers' weights, in the form of compressed-tensors:
// e4m3 or i8 with a scale for every output and inputs quantized per token, or 4 bits in groups of
// 128. For benchmarks that read real files. What else FROM has is copied.
//
// Codes are uniform and scales such that a product keeps the size of its input. Run it by
// `tools/bench-gpu`.
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GROUP 128
#define ROOM  ((size_t)1 << 20) // bytes that are written at once

typedef struct scheme {
    const char *name;
    const char *config;
    const char *leaf; // the codes' tensor
    const char *dtype;
    int64_t per_byte; // codes in an element: 8 in a word of 32 bits
    int64_t element;  // bytes
    int64_t group;    // inputs that share a scale; 0: all
    uint8_t mask;     // of a random byte
    double size;      // root of the mean square of a code
} scheme;

#define LINEAR   "\"targets\": [\"Linear\"], "
#define ARGUMENT "\"num_bits\": 8, \"symmetric\": true, "
#define INPUTS(type)                                                                               \
    "\"input_activations\": {" ARGUMENT "\"type\": \"" type "\", \"strategy\": \"token\", "        \
    "\"dynamic\": true}"
#define WEIGHTS(type)                                                                              \
    "\"weights\": {" ARGUMENT "\"type\": \"" type "\", \"strategy\": \"channel\", "                \
    "\"dynamic\": false}"

static const scheme schemes[] = {
    {"fp8",
     "\"format\": \"float-quantized\", \"config_groups\": {\"group_0\": {" LINEAR WEIGHTS(
         "float") ", " INPUTS("float") "}}",
     "weight",                                                                               "F8_E4M3", 1, 1, 0,     0xfd, 114}, // the mask leaves out what is no number
    {"int8",
     "\"format\": \"int-quantized\", \"config_groups\": {\"group_0\": {" LINEAR WEIGHTS(
         "int") ", " INPUTS("int") "}}",
     "weight",                                                                               "I8",      1, 1, 0,     0xff, 74 },
    {"int4",
     "\"format\": \"pack-quantized\", \"config_groups\": {\"group_0\": {" LINEAR
     "\"weights\": {\"num_bits\": 4, \"symmetric\": true, \"type\": \"int\", "
     "\"strategy\": \"group\", \"group_size\": 128, \"dynamic\": false}}}", "weight_packed", "I32",     8, 4, GROUP, 0xff, 4.6},
};

typedef struct tensor {
    char name[160];
    char dtype[16];
    int64_t shape[2];
    int ndim;
    int64_t bytes;
    int64_t from; // offset of its bytes in FROM's data; −1: random
    uint8_t mask;
    double scale; // of random scales; 0: codes
} tensor;

static _Noreturn void stop(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("quantize-random: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) {
        stop("no memory for %zu bytes", bytes);
    }
    return memory;
}

static FILE *open_in(const char *directory, const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, mode);
    if (!file) {
        stop("%s: %s", path, strerror(errno));
    }
    return file;
}

static char *read_text(FILE *file, size_t bytes) {
    char *text = allocate(bytes + 1);
    if (fread(text, 1, bytes, file) != bytes) {
        stop("a file of FROM ends too early");
    }
    text[bytes] = 0;
    return text;
}

static void close_file(FILE *file, const char *name) {
    const int is_bad = ferror(file);
    if (fclose(file) != 0 || is_bad) {
        stop("%s: cannot be written: %s", name, strerror(errno));
    }
}

static char *read_all(const char *directory, const char *name, size_t *size) {
    FILE *file = open_in(directory, name, "rb");
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    fseek(file, 0, SEEK_SET);
    char *text = read_text(file, *size);
    fclose(file);
    return text;
}

// A small file, with `more` in front of its last brace.
static void copy_file(const char *from, const char *to, const char *name, const char *more) {
    size_t size = 0;
    char *text = read_all(from, name, &size);
    const char *brace = strrchr(text, '}');
    const size_t head = brace ? (size_t)(brace - text) : size;
    FILE *file = open_in(to, name, "wb");
    fwrite(text, 1, head, file);
    fputs(more, file);
    fwrite(text + head, 1, size - head, file);
    close_file(file, name);
    free(text);
}

// ---- tensors ------------------------------------------------------------------------------------

static int is_linear(const char *name) {
    return strstr(name, "_proj.weight") != NULL;
}

static tensor *put(tensor *list, size_t *count, const char *name, const char *leaf,
                   const char *dtype) {
    tensor *t = &list[(*count)++];
    const size_t prefix = leaf ? strlen(name) - strlen("weight") : strlen(name);
    snprintf(t->name, sizeof t->name, "%.*s%s", (int)prefix, name, leaf ? leaf : "");
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    t->from = -1;
    t->ndim = 2;
    return t;
}

static void put_linear(tensor *list, size_t *count, const tensor *was, const scheme *s) {
    const int64_t rows = was->shape[0];
    const int64_t width = was->shape[1];
    const int64_t groups = s->group > 0 ? width / s->group : 1;
    if (width % (s->group > 0 ? s->group : s->per_byte) != 0) {
        stop("'%s': groups do not divide %" PRId64 " inputs", was->name, width);
    }
    tensor *codes = put(list, count, was->name, s->leaf, s->dtype);
    codes->shape[0] = rows;
    codes->shape[1] = width / s->per_byte;
    codes->bytes = rows * codes->shape[1] * s->element;
    codes->mask = s->mask;
    tensor *scales = put(list, count, was->name, "weight_scale", "BF16");
    scales->shape[0] = rows;
    scales->shape[1] = groups;
    scales->bytes = rows * groups * 2;
    scales->scale = 1 / (s->size * sqrt((double)width));
    if (s->per_byte > 1) {
        tensor *shape = put(list, count, was->name, "weight_shape", "I64");
        shape->ndim = 1;
        shape->shape[0] = 2;
        shape->shape[1] = width;
        shape->bytes = 16;
        shape->scale = (double)rows;
    }
}

// The next tensor of a header as make-checkpoint writes them; where it ends, or NULL.
static const char *next_tensor(const char *at, tensor *out) {
    long long offsets[2];
    long long shape[2] = {0, 1};
    int used = 0;
    *out = (tensor){.ndim = 2};
    at = strstr(at, ", \"");
    if (!at) {
        return NULL;
    }
    if (sscanf(at,
               ", \"%159[^\"]\": {\"dtype\": \"%15[^\"]\", \"shape\": [%lld, %lld], "
               "\"data_offsets\": [%lld, %lld]}%n",
               out->name, out->dtype, &shape[0], &shape[1], &offsets[0], &offsets[1], &used) != 6) {
        shape[1] = 1;
        out->ndim = 1;
        if (sscanf(at,
                   ", \"%159[^\"]\": {\"dtype\": \"%15[^\"]\", \"shape\": [%lld], "
                   "\"data_offsets\": [%lld, %lld]}%n",
                   out->name, out->dtype, &shape[0], &offsets[0], &offsets[1], &used) != 5) {
            stop("FROM has a tensor that make-checkpoint did not write");
        }
    }
    out->shape[0] = shape[0];
    out->shape[1] = shape[1];
    out->from = offsets[0];
    out->bytes = offsets[1] - offsets[0];
    return at + used;
}

// ---- writing ------------------------------------------------------------------------------------

static void write_header(FILE *file, const tensor *list, size_t count) {
    char *text = NULL;
    size_t size = 0;
    int64_t offset = 0;
    FILE *header = open_memstream(&text, &size);
    if (!header) {
        stop("no memory for the header");
    }
    fputs("{\"__metadata__\": {\"format\": \"pt\"}", header);
    for (size_t i = 0; i < count; ++i) {
        const tensor *t = &list[i];
        fprintf(header, ", \"%s\": {\"dtype\": \"%s\", \"shape\": [%" PRId64, t->name, t->dtype,
                t->shape[0]);
        if (t->ndim == 2) {
            fprintf(header, ", %" PRId64, t->shape[1]);
        }
        fprintf(header, "], \"data_offsets\": [%" PRId64 ", %" PRId64 "]}", offset,
                offset + t->bytes);
        offset += t->bytes;
    }
    fputc('}', header);
    fflush(header);
    const size_t blanks = (8 - size % 8) % 8;
    fprintf(header, "%*s", (int)blanks, "");
    fclose(header);
    const uint64_t length = size;
    fwrite(&length, sizeof length, 1, file);
    fwrite(text, 1, size, file);
    free(text);
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void write_scales(FILE *file, const tensor *t, uint64_t *state) {
    for (int64_t i = 0; i < t->bytes / 2; ++i) {
        const double unit = (double)(next_random(state) >> 40) / 16777216.0;
        const float scale = (float)(t->scale * (0.75 + 0.5 * unit));
        uint32_t bits;
        memcpy(&bits, &scale, sizeof bits);
        const uint16_t half = (uint16_t)(bits >> 16);
        fwrite(&half, sizeof half, 1, file);
    }
}

static void write_codes(FILE *file, const tensor *t, uint64_t *state, uint64_t *room) {
    const uint64_t mask = t->mask * UINT64_C(0x0101010101010101);
    for (int64_t left = t->bytes; left > 0;) {
        const size_t now = left < (int64_t)ROOM ? (size_t)left : ROOM;
        for (size_t i = 0; i < (now + 7) / 8; ++i) {
            room[i] = next_random(state) & mask;
        }
        fwrite(room, 1, now, file);
        left -= (int64_t)now;
    }
}

static void copy_tensor(FILE *file, const tensor *t, FILE *from, int64_t data, void *room) {
    if (fseek(from, (long)(data + t->from), SEEK_SET) != 0) {
        stop("FROM's weights: %s", strerror(errno));
    }
    for (int64_t left = t->bytes; left > 0;) {
        const size_t now = left < (int64_t)ROOM ? (size_t)left : ROOM;
        if (fread(room, 1, now, from) != now) {
            stop("FROM's weights end too early");
        }
        fwrite(room, 1, now, file);
        left -= (int64_t)now;
    }
}

static void write_weights(const char *from, const char *to, const scheme *s) {
    FILE *source = open_in(from, "model.safetensors", "rb");
    FILE *file = open_in(to, "model.safetensors", "wb");
    uint64_t length = 0;
    uint64_t state = 88172645463325252;
    if (fread(&length, sizeof length, 1, source) != 1) {
        stop("FROM has no weights");
    }
    char *header = read_text(source, length);
    tensor *list = allocate((length / 16 + 1) * sizeof *list);
    uint64_t *room = allocate(ROOM);
    size_t count = 0;
    tensor was;
    memset(list, 0, (length / 16 + 1) * sizeof *list);
    for (const char *at = header; (at = next_tensor(at, &was)) != NULL;) {
        if (is_linear(was.name)) {
            put_linear(list, &count, &was, s);
        } else {
            list[count++] = was;
        }
    }
    write_header(file, list, count);
    for (size_t i = 0; i < count; ++i) {
        const tensor *t = &list[i];
        const int64_t shape[] = {(int64_t)t->scale, t->shape[1]};
        if (t->from >= 0) {
            copy_tensor(file, t, source, (int64_t)(length + sizeof length), room);
        } else if (t->mask != 0) {
            write_codes(file, t, &state, room);
        } else if (t->ndim == 1) {
            fwrite(shape, sizeof shape, 1, file);
        } else {
            write_scales(file, t, &state);
        }
    }
    close_file(file, "model.safetensors");
    fclose(source);
    free(room);
    free(list);
    free(header);
}

int main(int argc, char **argv) {
    const scheme *s = NULL;
    for (size_t i = 0; argc == 4 && i < sizeof schemes / sizeof schemes[0]; ++i) {
        s = strcmp(schemes[i].name, argv[3]) == 0 ? &schemes[i] : s;
    }
    if (!s) {
        stop("usage: quantize-random FROM TO fp8|int8|int4");
    }
    if (mkdir(argv[2], 0777) != 0 && errno != EEXIST) {
        stop("%s: %s", argv[2], strerror(errno));
    }
    char more[1024];
    snprintf(more, sizeof more,
             ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
             "\"ignore\": [\"lm_head\", \"re:.*mlp.gate$\"], %s}",
             s->config);
    copy_file(argv[1], argv[2], "config.json", more);
    copy_file(argv[1], argv[2], "generation_config.json", "");
    copy_file(argv[1], argv[2], "tokenizer.json", "");
    write_weights(argv[1], argv[2], s);
    return 0;
}
