// SPDX-License-Identifier: Apache-2.0
// scaled_linear: codes of i8 are multiplied as integers, exactly; codes of e4m3 as the numbers they
// are for (packed_tiles.h).
#include <cpu/cpu.h>

#include <cpu/packed_codes.h>
#include <cpu/packed_run.h>

enum { X, X_SCALE, WEIGHT, WEIGHT_SCALE, SUM_BIAS, BIAS };

// ---- instances ----------------------------------------------------------------------------------

static packed_kind kind_of(const berth_op_site *site) {
    return site->inputs[X]->dtype == BERTH_DTYPE_I8 ? PACKED_I8 : PACKED_E4M3;
}

static int64_t width_of(const berth_op_site *site) {
    return site->inputs[WEIGHT]->dims[1].b;
}

static berth_code_scales groups_of(const berth_op_site *site) {
    return berth_code_scales_of(site, NULL, site->inputs[WEIGHT]->dims[0].b, width_of(site));
}

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const uint64_t needed = UINT64_C(1) << WEIGHT | UINT64_C(1) << WEIGHT_SCALE;
    if ((site->parameter_mask & needed) != needed) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "codes or scales are no parameters and cannot be packed");
    }
    const packed_kind kind = kind_of(site);
    const int64_t columns = groups_of(site).columns;
    if (!packed_has_group(kind, columns, width_of(site))) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "groups of %lld columns: %d columns are multiplied together",
                                 (long long)columns, packed_columns(kind));
    }
    return kind != PACKED_I8 || at_most(columns, width_of(site)) <= CODES_MOST_COLUMNS
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                   "groups of %lld columns, whose sums may pass 32 bits",
                                   (long long)columns);
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const packed known = {
        .cpu = device->self,
        .kind = kind_of(site),
        .in = width_of(site),
        .group = groups_of(site).columns,
        .out = site->inputs[WEIGHT]->dims[0].b,
    };
    return packed_create(site, device, &known, out_self);
}

// ---- packing ------------------------------------------------------------------------------------

static uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    const int64_t outputs = site->inputs[WEIGHT]->dims[0].b;
    return input == WEIGHT         ? packed_bytes_for(kind_of(site), outputs, width_of(site))
           : input == WEIGHT_SCALE ? packed_scale_bytes(site->inputs[input], outputs)
                                   : 0;
}

static berth_status pack_rows(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                              int64_t first, const berth_tensor *destination) {
    const packed_kind kind = kind_of(site);
    return packed_put(
        &(const packed_source){
            .rows = source,
            .kind = kind,
            .outputs = site->inputs[WEIGHT]->dims[0].b,
            .columns = width_of(site),
            .flip = kind == PACKED_I8 ? 0x80808080u : 0,
            .repeats = input == WEIGHT ? 0 : groups_of(site).rows,
        },
        first, berth_data(destination));
}

static berth_status pack(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                         const berth_tensor *destination) {
    return pack_rows(site, input, source, 0, destination);
}

// ---- running ------------------------------------------------------------------------------------

static berth_status forward(void *state, const berth_op_args *args) {
    const packed *self = state;
    packed_run(
        (packed_job){
            .self = self,
            .args = args,
            .load = codes_load_of(self),
            .floats = codes_floats_of(self),
            .weight = args->inputs[WEIGHT],
            .scales = args->inputs[WEIGHT_SCALE],
            .x_scales = args->inputs[X_SCALE],
            .sum_bias = args->inputs[SUM_BIAS],
            .bias = args->inputs[BIAS],
        },
        berth_row_count(args->inputs[X]));
    return BERTH_OK;
}

const berth_op_impl berth_kernel_scaled_linear = {
    .size = sizeof(berth_op_impl),
    .op = "scaled_linear",
    .name = "cpu.scaled_linear",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
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
