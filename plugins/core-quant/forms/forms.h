// SPDX-License-Identifier: Apache-2.0
// What the schemes of this folder end in: forms of a quantized layer. A scheme finds out
// what a layer is, writes it into the layer's notes and hands out the form's method. Private to
// core-quant.
#ifndef BERTH_FORMS_H
#define BERTH_FORMS_H

#include <berth/quant.h>

#include <codes.h>

// The layer is left to "unquantized": returns NULL.
static inline const berth_quant_method *berth_form_none(const berth_linear *linear) {
    linear->quant->is_unquantized = 1;
    return NULL;
}

// A field of a configuration, of one of three kinds.
typedef struct berth_form_field {
    const char *path;
    int64_t *number;
    int64_t *truth;
    const char **text;
} berth_form_field;

// Reads fields; one that is absent or null leaves what was there. BERTH_CORRUPT with a text where
// one is of another kind.
berth_status berth_form_read(const berth_host *host, const berth_json *from,
                             const berth_form_field *fields, uint64_t count);

// Whether a configuration that names no method is one of AWQ: GPTQ's has neither field.
static inline int berth_form_is_awq(const berth_host *host, const berth_json *config) {
    const berth_json *field = NULL;
    return host->json_get(config, "quantization_config.w_bit", &field) == BERTH_OK ||
           host->json_get(config, "quantization_config.zero_point", &field) == BERTH_OK;
}

// What of the model is never quantized unless its scheme says so by name: heads and routers.
static inline int berth_form_is_body(const berth_linear *linear) {
    return strcmp(linear->layer_class, "ParallelLMHead") != 0 &&
           strcmp(linear->layer_class, "GateLinear") != 0;
}

// Whether the scheme has the layer: it is of the body, and no list of the configuration leaves its
// modules alone (`modules_to_not_convert`, `ignored_layers`, by parts of names). Where it is not
// so, or not alike for all modules, get_quant_method has but to return NULL.
int berth_form_takes(const berth_host *host, const berth_linear *linear);

// ---- scaled: codes of 8 bits, one to a number ---------------------------------------------------
//
// `weight` [outputs, inputs] i8 or e4m3 with multipliers; inputs quantized, or left as they are.

typedef enum berth_form_part {
    BERTH_FORM_PER_TENSOR = 1, // shards of a fused layer have their own
    BERTH_FORM_PER_CHANNEL,
    BERTH_FORM_PER_BLOCK,
} berth_form_part;

typedef enum berth_form_input {
    BERTH_FORM_INPUT_FLOAT, // only the weight is quantized
    BERTH_FORM_INPUT_STATIC,
    BERTH_FORM_INPUT_TOKEN,
    BERTH_FORM_INPUT_GROUP, // as many inputs as a block of the weight has
} berth_form_input;

// How the input's zero point comes.
typedef enum berth_form_zero {
    BERTH_FORM_SYMMETRIC,
    BERTH_FORM_ZERO_POINT, // `input_zero_point` i8; sums are corrected by it
    BERTH_FORM_QUANT_BIAS, // `input_offset`, and `quant_bias` i32 corrects the sums
} berth_form_zero;

enum {
    BERTH_SCALED_CODE, // berth_code
    BERTH_SCALED_PART,
    BERTH_SCALED_INPUT,
    BERTH_SCALED_ZERO,
    BERTH_SCALED_ROWS, // of a block
    BERTH_SCALED_COLUMNS,
    BERTH_SCALED_IS_INVERSE,  // the scale is called weight_scale_inv; it multiplies all the same
    BERTH_SCALED_HAS_OFFSETS, // the file also has `weight_offset` and `deq_scale`, which say
                              // nothing
};

extern const berth_quant_method berth_form_scaled;

// ---- packed: codes of 4 or 8 bits in words of 32 ------------------------------------------------
//
// Inputs are floats. All layouts end in those of the op packed_linear.

typedef enum berth_form_words {
    BERTH_FORM_WORDS_CT, // weight_packed [N, K/p], weight_scale [N, G], weight_zero_point [N/p, G]
    BERTH_FORM_WORDS_GPTQ, // qweight [K/p, N], scales [G, N], qzeros [G, N/p], g_idx [K]
    BERTH_FORM_WORDS_AWQ,  // qweight [K, N/8], scales [G, N], qzeros [G, N/8], in an order of its
                           // own
} berth_form_words;

enum {
    BERTH_PACKED_WORDS, // berth_form_words
    BERTH_PACKED_BITS,
    BERTH_PACKED_GROUP,     // inputs that share a scale; −1: all
    BERTH_PACKED_HAS_ZEROS, // zero points in the file
    BERTH_PACKED_ADDEND,    // to a stored zero point
    BERTH_PACKED_IS_SORTED, // groups are given by g_idx and not by the order of inputs
};

extern const berth_quant_method berth_form_packed;

// The group that packed notes mean, in inputs of the rank's part; fails the build where it is none
// or does not divide them.
int64_t berth_form_group(berth_builder *builder, const berth_linear *linear, int64_t group);

// ---- others -------------------------------------------------------------------------------------

enum {
    BERTH_NVFP4_IS_WEIGHT_ONLY,
    BERTH_NVFP4_HAS_MULTIPLIERS, // weight, weight_scale_2 and input_scale, ModelOpt's names; else
                                 // weight_packed and global scales that are divisors
};
extern const berth_quant_method berth_form_nvfp4;

enum { BERTH_NIBBLES_GROUP }; // inputs of a second scale; 0: none
extern const berth_quant_method berth_form_nibbles;

// ---- online: made of floats as they are loaded --------------------------------------------------
//
// Asked for by the user, for checkpoints that are not quantized. Heads, routers and what is
// multiplied by as a matrix of floats stay as they are.

typedef struct berth_form_rule {
    berth_code code;
    berth_form_part part;
    berth_form_input input;
    int64_t block; // rows and columns of one
} berth_form_rule;
const berth_quant_method *berth_form_online(const berth_linear *linear, berth_form_rule rule);
berth_status berth_form_online_matches(const berth_host *host, const berth_json *config);
// Whether --quantization `wanted` is this scheme, and the checkpoint's word is not against it.
uint64_t berth_form_online_takes(const berth_host *host, const berth_json *config,
                                 const char *wanted, const char *name);

// ---- KV caches ----------------------------------------------------------------------------------

extern const berth_kv_cache_method berth_form_kv_codes;

// For schemes whose checkpoints may have scales that are used only when the user asks for codes.
const berth_kv_cache_method *berth_form_kv_wanted(const berth_host *host,
                                                  berth_kv_cache_layer *layer);

#endif
