// SPDX-License-Identifier: Apache-2.0
// packed_linear: codes stay as they are in memory (packed_layout.h) and become numbers in
// registers.
#include <cpu/cpu.h>

#include <cpu/packed_run.h>

enum { X, WEIGHT, WEIGHT_SCALE, ZERO_POINTS, PERMUTATION, BIAS, OUTPUT_SCALE };

// ---- instances ----------------------------------------------------------------------------------

static berth_code code_of(const berth_op_site *site) {
    return berth_code_of(berth_site_attribute(site, "code")->str);
}

static int64_t width_of(const berth_op_site *site) {
    const berth_value_type *x = site->inputs[X];
    return x->dims[x->ndim - 1].b;
}

static berth_code_scales groups_of(const berth_op_site *site) {
    return berth_code_scales_of(site, NULL, site->inputs[WEIGHT]->dims[0].b, width_of(site));
}

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const uint64_t needed = UINT64_C(1) << WEIGHT | UINT64_C(1) << WEIGHT_SCALE |
                            (uint64_t)(site->inputs[ZERO_POINTS] != NULL) << ZERO_POINTS;
    if ((site->parameter_mask & needed) != needed) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "codes, scales or zero points are no parameters and cannot be "
                                 "packed");
    }
    const int64_t columns = groups_of(site).columns;
    const packed_kind kind = packed_kind_of(code_of(site));
    return packed_has_group(kind, columns, width_of(site))
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "groups of %lld columns: %d columns are multiplied together",
                                   (long long)columns, packed_columns(kind));
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_code code = code_of(site);
    const packed known = {
        .kind = packed_kind_of(code),
        .zero = packed_zero_of(code),
        .out = site->inputs[WEIGHT]->dims[0].b,
        .in = width_of(site),
        .group = groups_of(site).columns,
        .cpu = device->self,
    };
    return packed_create(site, device, &known, out_self);
}

// ---- packing ------------------------------------------------------------------------------------

static uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    const int64_t outputs = site->inputs[WEIGHT]->dims[0].b;
    return input == WEIGHT
               ? packed_bytes_for(packed_kind_of(code_of(site)), outputs, width_of(site))
           : input == WEIGHT_SCALE || input == ZERO_POINTS
               ? packed_scale_bytes(site->inputs[input], outputs)
               : 0;
}

static berth_status pack_rows(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                              int64_t first, const berth_tensor *destination) {
    const berth_code code = code_of(site);
    return packed_put(
        &(const packed_source){
            .rows = source,
            .kind = packed_kind_of(code),
            .outputs = site->inputs[WEIGHT]->dims[0].b,
            .columns = width_of(site),
            .flip = code == BERTH_CODE_I8 ? 0x80808080u : 0,
            .repeats = input == WEIGHT ? 0 : groups_of(site).rows,
        },
        first, berth_data(destination));
}

static berth_status pack(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                         const berth_tensor *destination) {
    return pack_rows(site, input, source, 0, destination);
}

// ---- running ------------------------------------------------------------------------------------

static void load(const packed_job *in, int64_t row, int64_t first, int64_t count, float *to) {
    packed_load_floats(in->args->inputs[X], in->args->inputs[PERMUTATION], row,
                       (berth_span){first, first + count}, to);
}

static berth_status forward(void *state, const berth_op_args *args) {
    packed_run(
        (packed_job){
            .self = state,
            .args = args,
            .load = load,
            .floats = load,
            .plain = args->inputs[PERMUTATION] ? NULL : args->inputs[X],
            .weight = args->inputs[WEIGHT],
            .scales = args->inputs[WEIGHT_SCALE],
            .zeros = args->inputs[ZERO_POINTS],
            .bias = args->inputs[BIAS],
            .factors = args->inputs[OUTPUT_SCALE],
        },
        berth_row_count(args->inputs[X]));
    return BERTH_OK;
}

const berth_op_impl berth_kernel_packed_linear = {
    .size = sizeof(berth_op_impl),
    .op = "packed_linear",
    .name = "cpu.packed_linear",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 2,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = packed_workspace,
    .forward = forward,
    .destroy = berth_instance_free,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .pack_rows = pack_rows,
};
