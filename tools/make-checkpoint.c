// SPDX-License-Identifier: Apache-2.0
// Writes a Hugging Face folder with random bf16 weights: config.json, generation_config.json,
// tokenizer.json and model.safetensors. Run it by tools/make-checkpoint.
//
// A weight is a random sign and mantissa with the exponent that keeps a product of its layer at the
// size of its input, so that activations neither vanish nor overflow. Norms are 1.
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "make-checkpoint.h"

#define NAME_BYTES   128
#define BUFFER_WORDS ((size_t)1 << 17) // 1 MiB
#define STREAMS      8                 // of random numbers, so that none waits for another

typedef struct shape {
    const char *name;
    const model *model; // NULL: a Llama
    int64_t vocab;
    int64_t hidden;
    int64_t intermediate;
    int64_t layers;
    int64_t heads;
    int64_t kv_heads;
    int64_t max_position;
    int64_t is_tied; // the head is the embedding table
    double rope_theta;
} shape;

typedef struct tensor {
    char name[NAME_BYTES];
    int64_t rows; // 0: a vector
    int64_t columns;
    double value; // of a vector's elements
    int64_t is_convolution;
} tensor;

static const shape shapes[] = {
    {"tinyllama",        NULL,       32000,  2048, 5632,  22, 32, 4, 2048,   0, 1e4},
    {"llama-3.2-1b",     NULL,       128256, 2048, 8192,  16, 32, 8, 131072, 1, 5e5},
    {"llama-3-8b",       NULL,       128256, 4096, 14336, 32, 32, 8, 8192,   0, 5e5},
    {"narrow",           NULL,       1024,   320,  896,   2,  5,  1, 2048,   0, 1e4}, // for tests
    {"olmoe-1b-7b",      &models[0], 50304,  0,    0,     16, 0,  0, 0,      0, 0  },
    {"deepseek-v2-lite", &models[1], 102400, 0,    0,     27, 0,  0, 0,      0, 0  },
    {"mamba2-2.7b",      &models[2], 50288,  0,    0,     64, 0,  0, 0,      0, 0  },
    {"olmoe-narrow",     &models[3], 1024,   0,    0,     1,  0,  0, 0,      0, 0  }, // for tests
    {"olmoe-grouped",    &models[4], 1024,   0,    0,     1,  0,  0, 0,      0, 0  }, // for tests
};

static _Noreturn void stop(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("make-checkpoint: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static FILE *open_in(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (!file) {
        stop("%s: %s", path, strerror(errno));
    }
    return file;
}

static void close_file(FILE *file, const char *name) {
    const int is_bad = ferror(file);
    if (fclose(file) != 0 || is_bad) {
        stop("%s: cannot be written: %s", name, strerror(errno));
    }
}

// ---- the small files ----------------------------------------------------------------------------

static void write_llama(FILE *file, const shape *s) {
    fprintf(file,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
            "\"dtype\": \"bfloat16\", \"hidden_act\": \"silu\", \"vocab_size\": %" PRId64
            ", \"hidden_size\": %" PRId64 ", \"intermediate_size\": %" PRId64
            ", \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": %" PRId64
            ", \"num_key_value_heads\": %" PRId64 ", \"head_dim\": %" PRId64
            ", \"max_position_embeddings\": %" PRId64
            ", \"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": %s, \"rope_parameters\": "
            "{\"rope_type\": \"default\", \"rope_theta\": %.1f}}\n",
            s->vocab, s->hidden, s->intermediate, s->layers, s->heads, s->kv_heads,
            s->hidden / s->heads, s->max_position, s->is_tied ? "true" : "false", s->rope_theta);
}

static void write_config(const char *directory, const shape *s) {
    FILE *file = open_in(directory, "config.json");
    if (s->model) {
        fprintf(file,
                "{%s, \"dtype\": \"bfloat16\", \"vocab_size\": %" PRId64
                ", \"num_hidden_layers\": %" PRId64 "}\n",
                s->model->config, s->vocab, s->layers);
    } else {
        write_llama(file, s);
    }
    close_file(file, "config.json");
    file = open_in(directory, "generation_config.json");
    fputs("{}\n", file); // no end of text: a benchmark gets all the tokens that it asks for
    close_file(file, "generation_config.json");
}

// The character that stands for a byte in byte-level BPE: itself where it is printable.
static unsigned character_of(unsigned byte) {
    unsigned next = 256;
    for (unsigned i = 0; i < 256; ++i) {
        const int is_plain =
            (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || (i >= 0xae && i <= 0xff);
        const unsigned character = is_plain ? i : next++;
        if (i == byte) {
            return character;
        }
    }
    return 0;
}

// One token a byte; every further id is a word of its own, so that any output can be printed.
static void write_tokenizer(const char *directory, const shape *s) {
    FILE *file = open_in(directory, "tokenizer.json");
    fputs("{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": "
          "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, "
          "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": "
          "{\"type\": \"BPE\", \"merges\": [], \"vocab\": {",
          file);
    for (int64_t id = 0; id < s->vocab; ++id) {
        const char *comma = id > 0 ? ", " : "";
        if (id < 256) {
            fprintf(file, "%s\"\\u%04x\": %" PRId64, comma, character_of((unsigned)id), id);
        } else {
            fprintf(file, "%s\"\\u0120w%" PRId64 "\": %" PRId64, comma, id, id);
        }
    }
    fputs("}}}\n", file);
    close_file(file, "tokenizer.json");
}

// ---- the weights --------------------------------------------------------------------------------

static void add(tensor *list, size_t *count, int64_t rows, int64_t columns, const char *format,
                ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(list[*count].name, NAME_BYTES, format, arguments);
    va_end(arguments);
    list[*count].rows = rows;
    list[*count].value = 1;
    list[(*count)++].columns = columns;
}

static size_t list_llama(const shape *s, tensor *list) {
    const int64_t kv = s->hidden / s->heads * s->kv_heads;
    size_t count = 0;
    add(list, &count, s->vocab, s->hidden, "model.embed_tokens.weight");
    if (!s->is_tied) {
        add(list, &count, s->vocab, s->hidden, "lm_head.weight");
    }
    add(list, &count, 0, s->hidden, "model.norm.weight");
    for (int64_t i = 0; i < s->layers; ++i) {
        const struct {
            const char *name;
            int64_t rows;
            int64_t columns;
        } parts[] = {
            {"input_layernorm",          0,               s->hidden      },
            {"post_attention_layernorm", 0,               s->hidden      },
            {"self_attn.q_proj",         s->hidden,       s->hidden      },
            {"self_attn.k_proj",         kv,              s->hidden      },
            {"self_attn.v_proj",         kv,              s->hidden      },
            {"self_attn.o_proj",         s->hidden,       s->hidden      },
            {"mlp.gate_proj",            s->intermediate, s->hidden      },
            {"mlp.up_proj",              s->intermediate, s->hidden      },
            {"mlp.down_proj",            s->hidden,       s->intermediate},
        };
        for (size_t k = 0; k < sizeof parts / sizeof parts[0]; ++k) {
            add(list, &count, parts[k].rows, parts[k].columns, "model.layers.%" PRId64 ".%s.weight",
                i, parts[k].name);
        }
    }
    return count;
}

static int64_t copies_of(const part *p) {
    return p->copies > 0 ? p->copies : 1;
}

// What one copy of a part is called in a layer.
static void name_part(const shape *s, const part *p, int64_t layer, int64_t copy, char *room) {
    const char *mark = strchr(p->name, '#');
    int used = 0;
    if (p->place != OUTSIDE) {
        used = snprintf(room, NAME_BYTES, "%s.%" PRId64 ".", s->model->layers, layer);
    }
    if (mark) {
        snprintf(room + used, NAME_BYTES - (size_t)used, "%.*s%" PRId64 "%s", (int)(mark - p->name),
                 p->name, copy, mark + 1);
    } else {
        snprintf(room + used, NAME_BYTES - (size_t)used, "%s", p->name);
    }
}

static int is_in_layer(const part *p, int64_t layer) {
    return p->place == EVERYWHERE || (p->place == LATER_LAYERS ? layer > 0 : layer == 0);
}

static size_t list_model(const shape *s, tensor *list) {
    size_t count = 0;
    for (int64_t layer = 0; layer < s->layers; ++layer) {
        for (uint64_t k = 0; k < s->model->part_count; ++k) {
            const part *p = &s->model->parts[k];
            for (int64_t i = 0; is_in_layer(p, layer) && i < copies_of(p); ++i) {
                tensor *t = &list[count++];
                name_part(s, p, layer, i, t->name);
                t->rows = p->rows == VOCABULARY ? s->vocab : p->rows;
                t->columns = p->columns;
                t->value = p->value;
                t->is_convolution = p->is_convolution;
            }
        }
    }
    return count;
}

// The most tensors that there can be.
static size_t capacity(const shape *s) {
    size_t count = 3 + 9 * (size_t)s->layers;
    for (uint64_t k = 0; s->model && k < s->model->part_count; ++k) {
        count += (size_t)(copies_of(&s->model->parts[k]) * s->layers);
    }
    return count;
}

static uint64_t elements(const tensor *t) {
    return (uint64_t)(t->rows > 0 ? t->rows : 1) * (uint64_t)t->columns;
}

// The header, padded with blanks so that the data begins at a multiple of 8.
static void write_header(FILE *file, const tensor *list, size_t count) {
    char *text = NULL;
    size_t size = 0;
    uint64_t offset = 0;
    FILE *header = open_memstream(&text, &size);
    if (!header) {
        stop("no memory for the header");
    }
    fputs("{\"__metadata__\": {\"format\": \"pt\"}", header);
    for (size_t i = 0; i < count; ++i) {
        const uint64_t bytes = 2 * elements(&list[i]);
        fprintf(header, ", \"%s\": {\"dtype\": \"BF16\", \"shape\": [", list[i].name);
        if (list[i].rows > 0) {
            fprintf(header, "%" PRId64 ", %s", list[i].rows, list[i].is_convolution ? "1, " : "");
        }
        fprintf(header, "%" PRId64 "], \"data_offsets\": [%" PRIu64 ", %" PRIu64 "]}",
                list[i].columns, offset, offset + bytes);
        offset += bytes;
    }
    fputc('}', header);
    fflush(header);
    while (size % 8 != 0) {
        fputc(' ', header);
        fflush(header);
    }
    fclose(header);
    const uint64_t length = size;
    fwrite(&length, sizeof length, 1, file);
    fwrite(text, 1, size, file);
    free(text);
}

// The exponent of about 1 / sqrt(fan_in), as the bits of four bf16 in a word.
static uint64_t exponent_bits(int64_t fan_in) {
    uint64_t exponent = 127;
    for (int64_t square = 1; 2 * square < fan_in; square *= 4) {
        --exponent;
    }
    return exponent << 7 & 0x7f80;
}

static void fill_random(uint64_t *states, uint64_t exponent, uint64_t *buffer, size_t words) {
    const uint64_t mask = UINT64_C(0x807f807f807f807f);
    for (size_t i = 0; i < words; i += STREAMS) {
        for (size_t k = 0; k < STREAMS; ++k) {
            states[k] ^= states[k] << 13;
            states[k] ^= states[k] >> 7;
            states[k] ^= states[k] << 17;
            buffer[i + k] = (states[k] & mask) | exponent;
        }
    }
}

static void write_random(FILE *file, const tensor *t, uint64_t *states, uint64_t *buffer) {
    const uint64_t exponent = exponent_bits(t->columns) * UINT64_C(0x0001000100010001);
    uint64_t left = elements(t);
    while (left > 0) {
        const uint64_t now = left < 4 * BUFFER_WORDS ? left : 4 * BUFFER_WORDS;
        fill_random(states, exponent, buffer, (now + 3) / 4);
        fwrite(buffer, 2, now, file);
        left -= now;
    }
}

// The value is one of bf16: its upper half as f32 is all of it.
static void write_vector(FILE *file, const tensor *t) {
    const float value = (float)t->value;
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t element = (uint16_t)(bits >> 16);
    for (int64_t i = 0; i < t->columns; ++i) {
        fwrite(&element, sizeof element, 1, file);
    }
}

static void write_tensors(FILE *file, const tensor *list, size_t count, uint64_t seed) {
    uint64_t *buffer = malloc((BUFFER_WORDS + STREAMS) * sizeof *buffer);
    uint64_t states[STREAMS];
    if (!buffer) {
        stop("no memory for a buffer");
    }
    for (size_t k = 0; k < STREAMS; ++k) {
        states[k] = (seed * STREAMS + k) * UINT64_C(0x9E3779B97F4A7C15) + 1;
    }
    for (size_t i = 0; i < count; ++i) {
        if (list[i].rows > 0) {
            write_random(file, &list[i], states, buffer);
        } else {
            write_vector(file, &list[i]);
        }
        if (ferror(file)) {
            stop("model.safetensors: cannot be written: %s", strerror(errno));
        }
    }
    free(buffer);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void write_weights(const char *directory, const shape *s, uint64_t seed) {
    const double start = seconds();
    tensor *list = calloc(capacity(s), sizeof *list);
    if (!list) {
        stop("no memory for the list of tensors");
    }
    const size_t count = s->model ? list_model(s, list) : list_llama(s, list);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
        bytes += 2 * elements(&list[i]);
    }
    FILE *file = open_in(directory, "model.safetensors");
    setvbuf(file, NULL, _IONBF, 0);
    // Why: blocks that the file system finds at once cost it half of what they cost one by one, and
    // a disk that is too small says so at the start.
    const int refusal = posix_fallocate(fileno(file), 0, (off_t)bytes);
    if (refusal == ENOSPC || refusal == EFBIG) {
        stop("model.safetensors: no room for %" PRIu64 " bytes: %s", bytes, strerror(refusal));
    }
    write_header(file, list, count);
    write_tensors(file, list, count, seed);
    close_file(file, "model.safetensors");
    printf("%s: %s, %" PRIu64 " parameters, %" PRIu64 " bytes, %.2f GB/s\n", directory, s->name,
           bytes / 2, bytes, 1e-9 * (double)bytes / (seconds() - start));
    free(list);
}

// ---- the command line ---------------------------------------------------------------------------

static shape find_shape(const char *name) {
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
        if (strcmp(shapes[i].name, name) == 0) {
            return shapes[i];
        }
    }
    stop("there is no shape '%s'; known are tinyllama, llama-3.2-1b, llama-3-8b, narrow, "
         "olmoe-1b-7b, deepseek-v2-lite, mamba2-2.7b, olmoe-narrow, olmoe-grouped",
         name);
}

static int64_t number(const char *option, const char *text) {
    char *end = NULL;
    const long long value = strtoll(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 1 || value > 1000000000) {
        stop("%s %s: a number from 1 to 1000000000 is needed", option, text);
    }
    return value;
}

#define CHANGEABLE 2 // the first of them are those of every family

// The numbers of a shape that can be given one by one.
static const struct {
    const char *option;
    size_t offset;
} numbers[] = {
    {"--vocab",        offsetof(shape, vocab)       },
    {"--layers",       offsetof(shape, layers)      },
    {"--hidden",       offsetof(shape, hidden)      },
    {"--intermediate", offsetof(shape, intermediate)},
    {"--heads",        offsetof(shape, heads)       },
    {"--kv-heads",     offsetof(shape, kv_heads)    },
    {"--max-position", offsetof(shape, max_position)},
};

static void set_option(shape *s, uint64_t *seed, const char *option, const char *value) {
    if (strcmp(option, "--shape") == 0) {
        *s = find_shape(value);
        return;
    }
    if (strcmp(option, "--seed") == 0) {
        *seed = (uint64_t)number(option, value);
        return;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
        if (strcmp(option, numbers[i].option) == 0) {
            if (s->model && i >= CHANGEABLE) {
                stop("%s: of shape %s only --layers and --vocab can be changed", option, s->name);
            }
            *(int64_t *)((char *)s + numbers[i].offset) = number(option, value);
            return;
        }
    }
    stop("unknown option %s; known are --shape --tied --untied --seed --vocab --hidden "
         "--intermediate --layers --heads --kv-heads --max-position",
         option);
}

static void check_shape(const shape *s) {
    if (s->vocab < 256) {
        stop("--vocab %" PRId64 ": at least 256, one token a byte", s->vocab);
    }
    if (s->model) {
        return; // whose other numbers nobody can change
    }
    if (s->hidden % s->heads != 0 || s->hidden / s->heads % 2 != 0) {
        stop("--hidden %" PRId64 " is no even multiple of --heads %" PRId64, s->hidden, s->heads);
    }
    if (s->heads % s->kv_heads != 0) {
        stop("--heads %" PRId64 " is no multiple of --kv-heads %" PRId64, s->heads, s->kv_heads);
    }
}

int main(int argc, char **argv) {
    shape s = shapes[0];
    const char *directory = NULL;
    uint64_t seed = 1;
    for (int i = 1; i < argc; ++i) {
        const char *option = argv[i];
        if (option[0] != '-') {
            directory = option;
        } else if (strcmp(option, "--tied") == 0 || strcmp(option, "--untied") == 0) {
            s.is_tied = strcmp(option, "--tied") == 0;
        } else if (++i == argc) {
            stop("%s needs a value", option);
        } else {
            set_option(&s, &seed, option, argv[i]);
        }
    }
    if (!directory) {
        stop("usage: make-checkpoint DIR [--shape NAME] [--tied|--untied] [--layers N] [--vocab N] "
             "[--hidden N] [--intermediate N] [--heads N] [--kv-heads N] [--max-position N] "
             "[--seed N]");
    }
    check_shape(&s);
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        stop("%s: %s", directory, strerror(errno));
    }
    write_config(directory, &s);
    write_tokenizer(directory, &s);
    write_weights(directory, &s, seed);
    return 0;
}
