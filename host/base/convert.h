// SPDX-License-Identifier: Apache-2.0
// Numbers of one floating type into another.
#ifndef BERTH_BASE_CONVERT_H
#define BERTH_BASE_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include <berth/types.h>

// Whether berth_convert knows the type: bf16, f16, f32.
bool berth_can_convert(berth_dtype dtype);
// `count` elements, rounded to nearest with ties to even; NaN stays NaN, what is too large becomes
// infinite. Neither side has to be aligned; they do not overlap.
void berth_convert(berth_dtype from, const void *source, berth_dtype to, void *destination,
                   uint64_t count);
// The number of a code of f8_e4m3fn, which berth_convert does not know.
float berth_float_of_e4m3(uint8_t code);

#endif
