// SPDX-License-Identifier: Apache-2.0
// platform-cpu has an implementation of every op, on every instruction set, but for those below.
// So an op that is added without one is either named here, with its reason, or fails.
#include <string.h>

#include "support/op_case.h"
#include "support/test.h"

extern const berth_op *const berth_native_ops[]; // ends with NULL

typedef struct exception {
    const char *op;
    const char *why;
} exception;

static const exception exceptions[] = {
    {"all_gather",          "a world of one: a copy, which the reference makes"      },
    {"all_reduce",          "a world of one: a copy, which the reference makes"      },
    {"broadcast",           "a world of one: a copy, which the reference makes"      },
    {"fused_linear",        "what one kernel runs where starting one has a price"    },
    {"fused_packed_linear", "what one kernel runs where starting one has a price"    },
    {"fused_scaled_linear", "what one kernel runs where starting one has a price"    },
    {"gather",              "a world of one: a copy, which the reference makes"      },
    {"linear_silu_and_mul", "what one kernel runs so as not to store the product"    },
    {"recv",                "a world of one: nobody sends"                           },
    {"reduce_scatter",      "a world of one: a copy, which the reference makes"      },
    {"rel_pos_attn",        "an encoder of images runs it once a picture, no decoder"},
    {"rotary_attention",    "what one kernel runs where starting one has a price"    },
    {"sample",              "on the host the worker draws by itself"                 },
    {"send",                "a world of one: nobody receives"                        },
};

static const exception *find_exception(const char *op) {
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; ++i) {
        if (strcmp(exceptions[i].op, op) == 0) {
            return &exceptions[i];
        }
    }
    return NULL;
}

static size_t count_missing(void) {
    size_t missing = 0;
    for (size_t i = 0; berth_native_ops[i] != NULL; ++i) {
        const char *op = berth_native_ops[i]->name;
        if (op_kernel_find(op) == NULL && find_exception(op) == NULL) {
            print_error("platform-cpu has no kernel of '%s'\n", op);
            ++missing;
        }
    }
    return missing;
}

TEST(every_op_of_a_decoder_has_a_cpu_kernel) {
    if (!op_kernels_are_built()) {
        SKIP("platform-cpu is not built");
    }
    for (size_t set = 0; set < op_kernel_sets(); ++set) {
        op_kernel_use(set);
        CHECK_UINT(count_missing(), 0);
    }
}

TEST(an_exception_is_an_op_without_a_cpu_kernel) {
    if (!op_kernels_are_built()) {
        SKIP("platform-cpu is not built");
    }
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; ++i) {
        bool is_op = false;
        for (size_t k = 0; berth_native_ops[k] != NULL; ++k) {
            is_op = is_op || strcmp(berth_native_ops[k]->name, exceptions[i].op) == 0;
        }
        CHECK(is_op);
        CHECK(op_kernel_find(exceptions[i].op) == NULL);
    }
}
