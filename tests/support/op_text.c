// SPDX-License-Identifier: Apache-2.0
// tests/ops/<op>.txt: one case a line, words apart by blanks, # begins a comment.
//
//   tolerance ATOL RTOL [ATOL RTOL]  for the lines that follow; the second pair for states, else 0
//   case NAME: WORD …            reference and kernels must agree
//   native NAME: WORD …          the same, but no kernel of platform-cpu may take it
//   refuse NAME: WORD … -> TEXT  the shape rule must refuse it, and its text must contain TEXT
//
// A word is one of
//   T=7, S=3                     the symbols s0 and s1, used as dimensions by their letter
//   max=512                      most tokens of a step, which instances are created for
//   INPUT=f32[T,64]              an operand, random; after the bracket, in this order:
//       (1,2)  random between these
//       +8  eight elements between rows      @1  begins one element later
//       <48 integers below 48                !   a parameter
//       :0,3,7  these numbers, in place of random ones
//   STATE=f32[9,8,2,16]          what no sequence has holds NaN, all of block 0 among it: nothing
//                                may come of it
//   ATTRIBUTE=0.5                by the kind that the op declares, a list as 1,-1
//   batch=2:5,1:9                sequences as new tokens : tokens in all; sets T; needs the states
//   skip=1                       so many first tokens are not stored
#include "support/op_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define MAX_LIST 64

typedef struct parsing {
    const op_line *line;
    op_case *out;
    uint64_t seed;
    int64_t skip;
    char batch[128];
} parsing;

static void bad_line(const char *path, int number, const char *why) {
    (void)fprintf(stderr, "%s:%d: %s\n", path, number, why);
    abort();
}

static void bad_word(const parsing *self, const char *word) {
    print_error("case %s of %s: what is '%s'?\n", self->line->name, self->line->op->name, word);
    CHECK(!"a word of the case is known");
}

// ---- lines --------------------------------------------------------------------------------------

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

// "NAME: BODY [-> TEXT]"; false when it is not.
static bool split_line(const char *text, op_line *line) {
    line->refusal[0] = 0;
    char *arrow = NULL;
    if (sscanf(text, "%79[^:]: %511[^\n]", line->name, line->body) != 2) {
        return false;
    }
    arrow = strstr(line->body, " -> ");
    if (arrow != NULL) {
        (void)snprintf(line->refusal, sizeof line->refusal, "%s", arrow + 4);
        *arrow = 0;
    }
    return (arrow != NULL) == (line->kind == OP_LINE_REFUSE);
}

// Reads one line into what is known so far; *out_is_case when it is a whole case.
static bool take_line(const char *text, op_line *line, bool *out_is_case) {
    static const char *const words[] = {"case ", "native ", "refuse "};
    *out_is_case = false;
    for (size_t kind = 0; kind < sizeof words / sizeof words[0]; ++kind) {
        if (begins(text, words[kind])) {
            line->kind = (op_line_kind)kind;
            *out_is_case = split_line(text + strlen(words[kind]), line);
            return *out_is_case;
        }
    }
    line->state_atol = text[0] == 0 ? line->state_atol : 0;
    line->state_rtol = text[0] == 0 ? line->state_rtol : 0;
    return text[0] == 0 || sscanf(text, "tolerance %lf %lf %lf %lf", &line->atol, &line->rtol,
                                  &line->state_atol, &line->state_rtol) >= 2;
}

void op_lines_read(const berth_op *op, const char *path,
                   void (*add)(const op_line *line, void *context), void *context) {
    op_line line = {.op = op};
    char text[640];
    bool is_case = false;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        bad_line(path, 0, "there is no such file");
        return;
    }
    for (int number = 1; fgets(text, sizeof text, file) != NULL; ++number) {
        text[strcspn(text, "#\n")] = 0;
        if (!take_line(text, &line, &is_case)) {
            bad_line(path, number, "neither tolerance, case, native, refuse nor a comment");
        }
        if (is_case) {
            add(&line, context);
        }
    }
    (void)fclose(file);
}

// ---- operands -----------------------------------------------------------------------------------

static berth_dtype dtype_of(const char *name) {
    static const struct {
        const char *name;
        berth_dtype dtype;
    } rows[] = {
        {"f64",  BERTH_DTYPE_F64      },
        {"f32",  BERTH_DTYPE_F32      },
        {"f16",  BERTH_DTYPE_F16      },
        {"bf16", BERTH_DTYPE_BF16     },
        {"i32",  BERTH_DTYPE_I32      },
        {"i64",  BERTH_DTYPE_I64      },
        {"i8",   BERTH_DTYPE_I8       },
        {"u8",   BERTH_DTYPE_U8       },
        {"bool", BERTH_DTYPE_BOOL     },
        {"f8",   BERTH_DTYPE_F8_E4M3FN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        if (strcmp(rows[i].name, name) == 0) {
            return rows[i].dtype;
        }
    }
    return BERTH_DTYPE_NONE;
}

static const char *parse_dims(const char *text, op_shape *out) {
    while (*text != ']' && out->ndim < BERTH_MAX_DIMS) {
        char *end = NULL;
        berth_dim dim = BERTH_DIM_CONST(strtoll(text, &end, 10));
        if (*text == 'T' || *text == 'S') {
            dim = *text == 'T' ? BERTH_DIM_TOKENS : BERTH_DIM_SEQUENCES;
            end = (char *)text + 1;
        }
        out->dims[out->ndim++] = dim;
        if (end == text || (*end != ',' && *end != ']')) {
            return NULL;
        }
        text = *end == ',' ? end + 1 : end;
    }
    return *text == ']' ? text + 1 : NULL;
}

static int64_t option(const char **text, char mark) {
    if (**text != mark) {
        return 0;
    }
    char *end = NULL;
    const int64_t value = strtoll(*text + 1, &end, 10);
    *text = end;
    return value;
}

// "0,3,7", one for each element.
static void set_numbers(const parsing *self, op_tensor *tensor, const char *text) {
    const char *next = text;
    for (int64_t i = 0; i < op_tensor_count(tensor); ++i) {
        char *end = NULL;
        op_tensor_set(tensor, i, strtod(next, &end));
        next = *end == ',' ? end + 1 : end;
    }
    if (*next != 0) {
        bad_word(self, text);
    }
}

// "(LOW,HIGH)", if it stands there.
static bool take_range(const char **rest, double range[2]) {
    int length = 0;
    if (sscanf(*rest, "(%lf,%lf)%n", &range[0], &range[1], &length) != 2 || length == 0) {
        return false;
    }
    *rest += length;
    return true;
}

// Random numbers lie in [-2, 2).
static void stretch(op_tensor *tensor, const double range[2]) {
    for (int64_t i = 0; i < op_tensor_count(tensor); ++i) {
        const double share = (op_tensor_get(tensor, i) + 2) / 4;
        op_tensor_set(tensor, i, range[0] + share * (range[1] - range[0]));
    }
}

static void build_operand(parsing *self, op_tensor *tensor, const char *value) {
    char dtype[8] = "";
    op_shape shape = {0};
    (void)sscanf(value, "%7[a-z0-9]", dtype);
    shape.dtype = dtype_of(dtype);
    const char *bracket = strchr(value, '[');
    const char *rest = bracket == NULL ? NULL : parse_dims(bracket + 1, &shape);
    if (shape.dtype == BERTH_DTYPE_NONE || rest == NULL) {
        bad_word(self, value);
        return;
    }
    double range[2];
    const bool has_range = take_range(&rest, range);
    shape.row_gap = option(&rest, '+');
    shape.offset = option(&rest, '@');
    const int64_t limit = option(&rest, '<');
    op_tensor_make(tensor, &shape, self->out);
    tensor->is_parameter = *rest == '!';
    rest += tensor->is_parameter;
    op_tensor_randomise(tensor, &self->seed, limit);
    if (has_range) {
        stretch(tensor, range);
    }
    if (*rest == ':') {
        set_numbers(self, tensor, rest + 1);
    } else if (*rest != 0) {
        bad_word(self, value);
    }
}

// "1,-1", numbers that live until the next line.
static void set_list(const parsing *self, berth_attribute *attribute, char *value) {
    static int64_t i64s[OP_MAX_ATTRIBUTES][MAX_LIST];
    static double f64s[OP_MAX_ATTRIBUTES][MAX_LIST];
    const ptrdiff_t place = attribute - self->out->attributes;
    char *next = value;
    for (attribute->count = 0; attribute->count < MAX_LIST; ++next) {
        f64s[place][attribute->count] = strtod(next, &next);
        i64s[place][attribute->count] = (int64_t)f64s[place][attribute->count];
        ++attribute->count;
        if (*next != ',') {
            break;
        }
    }
    attribute->i64s = i64s[place];
    attribute->f64s = f64s[place];
    if (*next != 0) {
        bad_word(self, value);
    }
}

static void set_attribute(const parsing *self, berth_attribute *attribute, char *value) {
    char *end = NULL;
    if (attribute->kind == BERTH_ATTRIBUTE_I64S || attribute->kind == BERTH_ATTRIBUTE_F64S) {
        set_list(self, attribute, value);
        return;
    }
    attribute->f64 = strtod(value, &end);
    attribute->i64 = (int64_t)attribute->f64;
    attribute->str = value; // lives as long as the line
    if (attribute->kind != BERTH_ATTRIBUTE_STR && *end != 0) {
        bad_word(self, value);
    }
}

// ---- batch --------------------------------------------------------------------------------------

static int64_t parse_batch(const char *text, int64_t lengths[][2]) {
    int64_t count = 0;
    for (int used = 0; *text != 0; text += used, ++count) {
        long long fresh = 0;
        long long total = 0;
        if (sscanf(text, "%lld:%lld%n", &fresh, &total, &used) != 2 || count == 16) {
            return 0;
        }
        lengths[count][0] = fresh;
        lengths[count][1] = total;
        used += text[used] == ',';
    }
    return count;
}

static void make_integers(op_tensor *tensor, berth_dtype dtype, int64_t rows, int64_t columns) {
    op_shape shape = {.dtype = dtype, .ndim = 1, .dims = {BERTH_DIM_CONST(rows)}};
    if (columns > 0) {
        shape.ndim = 2;
        shape.dims[1] = BERTH_DIM_CONST(columns);
        shape.row_gap = 1;
    }
    op_tensor_make(tensor, &shape, NULL);
}

// The blocks of a sequence, the last first, so that they never stand in order.
static void fill_sequence(parsing *self, int64_t sequence, const int64_t lengths[2],
                          int64_t *next_block) {
    op_case *out = self->out;
    const int64_t block_size = out->states[0].shape[1];
    const int64_t blocks = (lengths[1] + block_size - 1) / block_size;
    const int64_t width = out->block_table.shape[1];
    const int64_t start = (int64_t)op_tensor_get(&out->query_start_loc, sequence);
    op_tensor_set(&out->query_start_loc, sequence + 1, (double)(start + lengths[0]));
    op_tensor_set(&out->seq_lens, sequence, (double)lengths[1]);
    for (int64_t i = 0; i < width; ++i) {
        const int64_t block = i < blocks ? *next_block + blocks - 1 - i : 0;
        op_tensor_set(&out->block_table, sequence * width + i, (double)block);
    }
    *next_block += blocks;
    CHECK(*next_block <= out->states[0].shape[0]);
    for (int64_t i = 0; i < lengths[0]; ++i) {
        const int64_t position = lengths[1] - lengths[0] + i;
        const double block =
            op_tensor_get(&out->block_table, sequence * width + position / block_size);
        const double slot = block * (double)block_size + (double)(position % block_size);
        op_tensor_set(&out->slot_mapping, start + i, start + i < self->skip ? -1.0 : slot);
    }
}

static void poison(op_case *out, int64_t first, int64_t behind) {
    for (uint64_t state = 0; state < out->op->state_count; ++state) {
        const op_tensor *of = &out->states[state];
        const int64_t per_slot = op_tensor_count(of) / (of->shape[0] * of->shape[1]);
        for (int64_t i = first * per_slot; i < behind * per_slot; ++i) {
            op_tensor_set(&out->states[state], i, NAN);
        }
    }
}

// Slots behind the sequence's last token, in the block of that.
static void poison_behind(op_case *out, int64_t sequence, int64_t length) {
    const int64_t block_size = out->states[0].shape[1];
    const int64_t used = length % block_size;
    if (used != 0) {
        const int64_t at = sequence * out->block_table.shape[1] + length / block_size;
        const int64_t first = (int64_t)op_tensor_get(&out->block_table, at) * block_size;
        poison(out, first + used, first + block_size);
    }
}

static void build_batch(parsing *self) {
    op_case *out = self->out;
    int64_t lengths[16][2];
    const int64_t count = parse_batch(self->batch, lengths);
    int64_t blocks = 1;
    int64_t next_block = 1;
    CHECK(op_tensor_is_present(&out->states[0]));
    for (int64_t i = 0; i < count; ++i) {
        const int64_t needed = lengths[i][1] / out->states[0].shape[1] + 1;
        blocks = needed > blocks ? needed : blocks;
    }
    make_integers(&out->query_start_loc, BERTH_DTYPE_I32, count + 1, 0);
    make_integers(&out->seq_lens, BERTH_DTYPE_I32, count, 0);
    make_integers(&out->block_table, BERTH_DTYPE_I32, count, blocks);
    make_integers(&out->slot_mapping, BERTH_DTYPE_I64, out->tokens, 0);
    op_tensor_set(&out->query_start_loc, 0, 0);
    for (int64_t i = 0; i < count; ++i) {
        fill_sequence(self, i, lengths[i], &next_block);
        poison_behind(out, i, lengths[i][1]);
    }
    poison(out, 0, out->states[0].shape[1]);
    poison(out, next_block * out->states[0].shape[1],
           out->states[0].shape[0] * out->states[0].shape[1]);
}

// ---- words --------------------------------------------------------------------------------------

// Sizes first: operands may use them wherever they stand.
static bool take_size(parsing *self, const char *word) {
    long long value = 0;
    int64_t lengths[16][2];
    if (begins(word, "batch=")) {
        (void)snprintf(self->batch, sizeof self->batch, "%s", word + 6);
        const int64_t count = parse_batch(self->batch, lengths);
        CHECK(count > 0 || self->batch[0] == 0);
        self->out->tokens = 0;
        for (int64_t i = 0; i < count; ++i) {
            self->out->tokens += lengths[i][0];
        }
    } else if (sscanf(word, "T=%lld", &value) == 1) {
        self->out->tokens = value;
    } else if (sscanf(word, "S=%lld", &value) == 1) {
        self->out->rows = value;
    } else if (sscanf(word, "max=%lld", &value) == 1) {
        self->out->max_tokens = (uint64_t)value;
    } else if (sscanf(word, "skip=%lld", &value) == 1) {
        self->skip = value;
    } else {
        return false;
    }
    return true;
}

static void take_word(parsing *self, char *word) {
    char *value = strchr(word, '=');
    if (take_size(self, word)) {
        return;
    }
    if (value == NULL) {
        bad_word(self, word);
        return;
    }
    *value = 0;
    op_tensor *operand = op_case_operand(self->out, word);
    berth_attribute *attribute = op_case_attribute(self->out, word);
    *value++ = '=';
    if (operand != NULL) {
        build_operand(self, operand, value);
    } else if (attribute != NULL) {
        set_attribute(self, attribute, value);
    } else {
        bad_word(self, word);
    }
}

void op_line_build(const op_line *line, op_case *out) {
    static char words[sizeof line->body]; // texts of attributes stay valid until the next line
    parsing self = {.line = line, .out = out, .seed = 1};
    char *rest = NULL;
    op_case_init(out, line->op);
    out->atol = line->atol;
    out->rtol = line->rtol;
    out->state_atol = line->state_atol;
    out->state_rtol = line->state_rtol;
    for (const char *c = line->name; *c != 0; ++c) {
        self.seed = self.seed * 131 + (unsigned char)*c;
    }
    (void)snprintf(words, sizeof words, "%s", line->body);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        (void)take_size(&self, word);
    }
    (void)snprintf(words, sizeof words, "%s", line->body);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        take_word(&self, word);
    }
    if (self.batch[0] != 0) {
        build_batch(&self);
    }
}
