// SPDX-License-Identifier: Apache-2.0
// Where vLLM's own forms of an op disagree, which one ours follow: reference and kernels alike.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "support/op_case.h"
#include "support/test.h"

extern const berth_op berth_op_quant_fp8;
extern const berth_op berth_op_conv2d;
extern const berth_op berth_op_topk_softmax;
extern const berth_op berth_op_grouped_topk;
extern const berth_op berth_op_ssd;
extern const berth_op berth_op_gated_delta_rule;
extern const berth_op berth_op_causal_conv1d;
extern const berth_op berth_op_dual_chunk_rotary_embedding;
extern const berth_op berth_op_mhc_pre;

typedef struct choice {
    op_case at_hand;
    op_results got[4]; // of the reference, then of every set
    size_t count;
} choice;

static void build(choice *self, const berth_op *op, const char *body) {
    op_line line = {.op = op, .name = "choice"};
    (void)snprintf(line.body, sizeof line.body, "%s", body);
    *self = (choice){0};
    op_line_build(&line, &self->at_hand);
}

static void set(choice *self, const char *name, const double *values, size_t count) {
    op_tensor *operand = op_case_operand(&self->at_hand, name);
    for (size_t i = 0; i < count; ++i) {
        op_tensor_set(operand, (int64_t)i, values[i]);
    }
}

static void run(choice *self) {
    op_case_reference(&self->at_hand, &self->got[self->count++]);
    for (size_t i = 0; i < op_kernel_sets(); ++i) {
        op_kernel_use(i);
        op_case_run(&self->at_hand, op_kernel_find(self->at_hand.op->name),
                    &self->got[self->count++]);
    }
}

// Everybody's output is this; a NaN is one.
static void check(const choice *self, size_t output, const double *wanted, size_t count) {
    for (size_t i = 0; i < self->count; ++i) {
        for (size_t k = 0; k < count; ++k) {
            const double got = op_tensor_get(&self->got[i].outputs[output], (int64_t)k);
            CHECK(got == wanted[k] || (isnan(got) && isnan(wanted[k])));
        }
    }
}

static void end(choice *self) {
    for (size_t i = 0; i < self->count; ++i) {
        op_results_free(&self->got[i]);
    }
    op_case_free(&self->at_hand);
}

// vLLM's device kernels: scale 0 and the largest codes, and a finite code for a NaN.
TEST(quant_fp8_of_zeros_has_the_least_scale_and_a_nan_stays_one) {
    static const double zeros[4] = {0};
    static const double codes[] = {0, 0, 0, 0};
    static const double mixed[] = {448, -1, NAN, 0};
    static const double scale[] = {(double)(float)(1.0 / (448.0 * 512.0))};
    static const double nans[] = {NAN, NAN, NAN, NAN};
    choice self;
    build(&self, &berth_op_quant_fp8, "x=f32[1,4] static=0 group_shape=-1,-1");
    set(&self, "x", zeros, BERTH_COUNT(zeros));
    run(&self);
    check(&self, 0, codes, BERTH_COUNT(codes));
    check(&self, 1, scale, BERTH_COUNT(scale));
    end(&self);
    build(&self, &berth_op_quant_fp8, "x=f32[1,4] static=0 group_shape=1,-1");
    set(&self, "x", mixed, BERTH_COUNT(mixed));
    run(&self);
    check(&self, 0, nans, BERTH_COUNT(nans));
    check(&self, 1, nans, 1);
    end(&self);
}

// vLLM's device kernels honour it.
TEST(a_convolution_of_patches_leaves_the_dilation_out) {
    static const double x[] = {1, 2, 3, 4};
    static const double weight[] = {1, 10, 100, 1000};
    static const double y[] = {4321};
    choice self;
    build(&self, &berth_op_conv2d, "x=f32[1,1,2,2] weight=f32[1,1,2,2]! stride=2 dilation=3");
    set(&self, "x", x, BERTH_COUNT(x));
    set(&self, "weight", weight, BERTH_COUNT(weight));
    run(&self);
    check(&self, 0, y, BERTH_COUNT(y));
    end(&self);
}

// vLLM leaves it open, or breaks ties by what its sort does.
TEST(of_equal_scores_the_lowest_id_is_chosen) {
    static const double logits[] = {0, 1, 1, 1, 0, 1};
    static const double ids[] = {1, 2, 3};
    const berth_op *const ops[] = {&berth_op_topk_softmax, &berth_op_grouped_topk};
    for (size_t i = 0; i < BERTH_COUNT(ops); ++i) {
        choice self;
        build(&self, ops[i], "gating_output=f32[1,6] topk=3 renormalize=1");
        set(&self, "gating_output", logits, BERTH_COUNT(logits));
        run(&self);
        check(&self, 1, ids, BERTH_COUNT(ids));
        end(&self);
    }
}

// Native makes NaN of a sum of zero; vLLM's fused kernels add 1e-20, or leave the division out.
TEST(a_sum_of_zero_divides_in_grouped_topk_alone) {
    static const double logits[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    static const double nans[] = {NAN, NAN};
    static const double zeros[] = {0, 0};
    static const char body[] = "gating_output=f32[1,4] topk=2 renormalize=1 scoring_func=sigmoid";
    choice self;
    build(&self, &berth_op_grouped_topk, body);
    set(&self, "gating_output", logits, BERTH_COUNT(logits));
    run(&self);
    check(&self, 0, nans, BERTH_COUNT(nans));
    end(&self);
    build(&self, &berth_op_topk_softmax, body);
    set(&self, "gating_output", logits, BERTH_COUNT(logits));
    run(&self);
    check(&self, 0, zeros, BERTH_COUNT(zeros));
    end(&self);
}

// vLLM's GPU kernel works in chunks and rounds operands inside them.
TEST(the_chunks_of_ssd_change_no_bit_of_the_reference) {
    static const char *const bodies[] = {
        "x=bf16[9,2,4] dt=bf16[9,2] A=f32[2]:-0.5,-1 B=bf16[9,1,5] C=bf16[9,1,5] "
        "cu_seqlens=i32[2]:0,9 chunk_size=1",
        "x=bf16[9,2,4] dt=bf16[9,2] A=f32[2]:-0.5,-1 B=bf16[9,1,5] C=bf16[9,1,5] "
        "cu_seqlens=i32[2]:0,9 chunk_size=256",
    };
    choice self[2];
    for (size_t i = 0; i < 2; ++i) {
        build(&self[i], &berth_op_ssd, bodies[i]);
        op_case_reference(&self[i].at_hand, &self[i].got[self[i].count++]);
    }
    op_results_compare(&self[1].got[0], &self[0].got[0], 0, 0);
    end(&self[0]);
    end(&self[1]);
}

// Of a key of length 1/1000, 1e-6 under the root is a half: vLLM's device kernels. The reference of
// its tests has 1e-5.
TEST(lengths_of_the_delta_rule_have_a_millionth_under_the_root) {
    choice self;
    build(&self, &berth_op_gated_delta_rule,
          "query=f32[1,1,1]:1 key=f32[1,1,1]:0.001 value=f32[1,1,1]:1 a=f32[1,1]:0 b=f32[1,1]:0 "
          "A_log=f32[1]:0 dt_bias=f32[1]:0 cu_seqlens=i32[2]:0,1");
    run(&self);
    for (size_t i = 0; i < self.count; ++i) {
        const double y = op_tensor_get(&self.got[i].outputs[0], 0);
        CHECK(fabs(y - 0.5 * sqrt(0.5)) < 1e-5);
    }
    end(&self);
}

// vLLM's CPU form; on a GPU the null block 0 is passed over, and -1 means nothing.
TEST(a_convolution_passes_over_slot_minus_one_and_not_over_slot_zero) {
    static const double y[] = {0, 53};
    static const double before[] = {5, 7};
    static const double states[] = {3, 7};
    choice self;
    build(&self, &berth_op_causal_conv1d,
          "x=f32[2,1]:2,3 weight=f32[1,2]:10,1 query_start_loc=i32[3]:0,1,2 "
          "cache_indices=i32[2]:-1,0 has_initial_state=bool[2]:1,1 conv_states=f32[2,1,1] "
          "channels_last=1");
    set(&self, "conv_states", before, BERTH_COUNT(before));
    run(&self);
    check(&self, 0, y, BERTH_COUNT(y));
    for (size_t i = 0; i < self.count; ++i) {
        for (size_t k = 0; k < BERTH_COUNT(states); ++k) {
            CHECK(op_tensor_get(&self.got[i].states[0], (int64_t)k) == states[k]);
        }
    }
    end(&self);
}

// vLLM's form drops the dimension of one token.
TEST(a_dual_chunk_rope_of_one_token_keeps_its_row) {
    choice self;
    build(&self, &berth_op_dual_chunk_rotary_embedding,
          "positions=i32[1]<8 query=f32[1,2,4] key=f32[1,1,4] rotary_dim=4 "
          "max_position_embeddings=8 chunk_size=4 local_size=1");
    op_case_reference(&self.at_hand, &self.got[self.count++]);
    CHECK_INT(self.got[0].outputs[0].type.ndim, 2);
    CHECK_INT(self.got[0].outputs[0].shape[0], 1);
    CHECK_INT(self.got[0].outputs[0].shape[1], 40);
    end(&self);
}

// One of vLLM's device kernels norms its layer_input once more; native and others do not.
TEST(mhc_pre_knows_no_norm_of_its_result) {
    for (uint64_t i = 0; i < berth_op_mhc_pre.input_count; ++i) {
        CHECK(strcmp(berth_op_mhc_pre.inputs[i]->name, "norm_weight") != 0);
    }
    for (uint64_t i = 0; i < berth_op_mhc_pre.attribute_count; ++i) {
        CHECK(strcmp(berth_op_mhc_pre.attributes[i]->name, "norm_eps") != 0);
    }
}
