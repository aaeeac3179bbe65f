// SPDX-License-Identifier: Apache-2.0
// Input: values, and the kind of norm that a decoder has. Output: norms and the running sum.
#include "parts.h"

static int is_rms(const berth_decoder *decoder) {
    return decoder->norm == BERTH_NORM_RMS || decoder->norm == BERTH_NORM_RMS_PLUS_ONE;
}

static const char *op_of(const berth_decoder *decoder) {
    return decoder->norm == BERTH_NORM_RMS            ? "rms_norm"
           : decoder->norm == BERTH_NORM_RMS_PLUS_ONE ? "gemma_rms_norm"
                                                      : "layer_norm";
}

static berth_value weight_of(berth_builder *b, const berth_decoder *decoder, const char *name,
                             int64_t length) {
    const berth_parameter parameter = {
        .size = sizeof(berth_parameter),
        .name = berth_build_name(b, "%s.weight", name),
        .shape = &length,
        .ndim = 1,
        .is_vector = 1,
        .output_dim = -1,
        .input_dim = -1,
        .addend = decoder->norm == BERTH_NORM_MEAN_PLUS_ONE ? 1 : 0,
    };
    return b->parameter(b, &parameter);
}

static int64_t width_of(berth_builder *b, berth_value x) {
    const berth_value_type *type = b->type(b, x);
    return type->ndim > 0 ? type->dims[type->ndim - 1].b : 1;
}

// Norms of the mean have a bias where those of the root mean square have a residual.
berth_value berth_decoder_norm_of(berth_builder *b, const berth_decoder *decoder, const char *name,
                                  berth_value x) {
    if (name == NULL) {
        return x;
    }
    const berth_value weight = weight_of(b, decoder, name, width_of(b, x));
    const berth_attribute *eps = BERTH_F64("eps", decoder->norm_eps);
    if (decoder->norm == BERTH_NORM_RMS) {
        return BERTH_EMIT(b, op_of(decoder), .prefix = name,
                          BERTH_INPUTS(x, BERTH_VALUE_NONE, weight), BERTH_ATTRIBUTES(eps));
    }
    const berth_value bias =
        !is_rms(decoder) && decoder->has_norm_bias
            ? berth_build_vector(b, berth_build_name(b, "%s.bias", name), width_of(b, x))
            : BERTH_VALUE_NONE;
    return BERTH_EMIT(b, op_of(decoder), .prefix = name, BERTH_INPUTS(x, weight, bias),
                      BERTH_ATTRIBUTES(eps));
}

berth_value berth_decoder_scale(berth_builder *b, const char *name, berth_value x, double scale) {
    return scale == 0 || scale == 1 ? x
                                    : BERTH_EMIT(b, "scale_logits", .prefix = name, BERTH_INPUTS(x),
                                                 BERTH_ATTRIBUTES(BERTH_F64("scale", scale)));
}

// ---- the running sum ----------------------------------------------------------------------------

berth_value berth_stream_value(berth_builder *b, const char *name, berth_stream *stream) {
    if (stream->waiting != BERTH_VALUE_NONE) {
        stream->sum =
            BERTH_EMIT(b, "add", .prefix = name, BERTH_INPUTS(stream->sum, stream->waiting));
        stream->waiting = BERTH_VALUE_NONE;
    }
    return stream->sum;
}

void berth_stream_add(berth_builder *b, const berth_decoder *decoder, const char *name,
                      berth_stream *stream, berth_value y) {
    (void)berth_stream_value(b, name, stream);
    stream->waiting = berth_decoder_scale(b, name, y, decoder->residual_scale);
}

berth_value berth_stream_norm(berth_builder *b, const berth_decoder *decoder, const char *name,
                              berth_stream *stream) {
    if (name == NULL || stream->waiting == BERTH_VALUE_NONE || !is_rms(decoder)) {
        return berth_decoder_norm_of(b, decoder, name, berth_stream_value(b, name, stream));
    }
    const int is_plain = decoder->norm == BERTH_NORM_RMS;
    const berth_value weight = weight_of(b, decoder, name, width_of(b, stream->sum));
    berth_value results[2] = {0};
    BERTH_EMIT(b, op_of(decoder), .prefix = name,
               BERTH_INPUTS(stream->waiting, is_plain ? stream->sum : weight,
                            is_plain ? weight : stream->sum),
               BERTH_ATTRIBUTES(BERTH_F64("eps", decoder->norm_eps)), BERTH_OUTPUTS(results));
    *stream = (berth_stream){.sum = results[1]};
    return results[0];
}
