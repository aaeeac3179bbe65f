// SPDX-License-Identifier: Apache-2.0
// The attributes of rotary_embedding, which ops that turn query and key by the way have too, in its
// order and with its defaults. What they mean: rotary_embedding.c and rope.h.
#ifndef BERTH_KERNELS_NATIVE_ROPE_ATTRIBUTES_H
#define BERTH_KERNELS_NATIVE_ROPE_ATTRIBUTES_H

#include <berth/op.h>

#define BERTH_ROPE_ATTRIBUTES                                                                      \
    BERTH_REQUIRED_ATTRIBUTE("rotary_dim", BERTH_ATTRIBUTE_I64),                                   \
        BERTH_REQUIRED_ATTRIBUTE("max_position", BERTH_ATTRIBUTE_I64),                             \
        BERTH_OPTIONAL_ATTRIBUTE("base", BERTH_ATTRIBUTE_F64, .f64 = 10000.0),                     \
        BERTH_OPTIONAL_ATTRIBUTE("is_neox_style", BERTH_ATTRIBUTE_BOOL, .i64 = 1),                 \
        BERTH_OPTIONAL_ATTRIBUTE("rope_type", BERTH_ATTRIBUTE_STR, .str = "default"),              \
        BERTH_ABSENT_ATTRIBUTE("factor", BERTH_ATTRIBUTE_F64),                                     \
        BERTH_ABSENT_ATTRIBUTE("original_max_position_embeddings", BERTH_ATTRIBUTE_I64),           \
        BERTH_ABSENT_ATTRIBUTE("max_trained_positions", BERTH_ATTRIBUTE_I64),                      \
        BERTH_ABSENT_ATTRIBUTE("alpha", BERTH_ATTRIBUTE_F64),                                      \
        BERTH_ABSENT_ATTRIBUTE("low_freq_factor", BERTH_ATTRIBUTE_F64),                            \
        BERTH_ABSENT_ATTRIBUTE("high_freq_factor", BERTH_ATTRIBUTE_F64),                           \
        BERTH_ABSENT_ATTRIBUTE("beta_fast", BERTH_ATTRIBUTE_F64),                                  \
        BERTH_ABSENT_ATTRIBUTE("beta_slow", BERTH_ATTRIBUTE_F64),                                  \
        BERTH_ABSENT_ATTRIBUTE("truncate", BERTH_ATTRIBUTE_BOOL),                                  \
        BERTH_ABSENT_ATTRIBUTE("attention_factor", BERTH_ATTRIBUTE_F64),                           \
        BERTH_ABSENT_ATTRIBUTE("mscale", BERTH_ATTRIBUTE_F64),                                     \
        BERTH_ABSENT_ATTRIBUTE("mscale_all_dim", BERTH_ATTRIBUTE_F64),                             \
        BERTH_ABSENT_ATTRIBUTE("mixed_b", BERTH_ATTRIBUTE_F64),                                    \
        BERTH_ABSENT_ATTRIBUTE("partial_rotary_factor", BERTH_ATTRIBUTE_F64),                      \
        BERTH_ABSENT_ATTRIBUTE("short_factor", BERTH_ATTRIBUTE_F64S),                              \
        BERTH_ABSENT_ATTRIBUTE("long_factor", BERTH_ATTRIBUTE_F64S),                               \
        BERTH_ABSENT_ATTRIBUTE("short_mscale", BERTH_ATTRIBUTE_F64),                               \
        BERTH_ABSENT_ATTRIBUTE("long_mscale", BERTH_ATTRIBUTE_F64),                                \
        BERTH_ABSENT_ATTRIBUTE("max_model_len", BERTH_ATTRIBUTE_I64),                              \
        BERTH_ABSENT_ATTRIBUTE("num_inv_freq", BERTH_ATTRIBUTE_I64),                               \
        BERTH_ABSENT_ATTRIBUTE("is_deepseek_v4", BERTH_ATTRIBUTE_BOOL),                            \
        BERTH_ABSENT_ATTRIBUTE("inverse", BERTH_ATTRIBUTE_BOOL),                                   \
        BERTH_ABSENT_ATTRIBUTE("mrope_section", BERTH_ATTRIBUTE_I64S),                             \
        BERTH_ABSENT_ATTRIBUTE("mrope_interleaved", BERTH_ATTRIBUTE_BOOL),                         \
        BERTH_ABSENT_ATTRIBUTE("mrope_positions_factor", BERTH_ATTRIBUTE_I64)

#endif
