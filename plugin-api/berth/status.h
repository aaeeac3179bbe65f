// SPDX-License-Identifier: Apache-2.0
// Status codes: what every call across the plugin boundary returns, and what the host uses inside.
//
// A status is an int32_t. The number is stable for ever; a reader that meets a number it does not
// know treats it as BERTH_INTERNAL. The text that explains a failure travels apart from the code:
// a plugin hands it to its host with BERTH_PLUGIN_FAIL (host.h) before it returns.
#ifndef BERTH_STATUS_H
#define BERTH_STATUS_H

#include <stdint.h>

typedef int32_t berth_status;

#define BERTH_OK               ((berth_status)0)
#define BERTH_INVALID_ARGUMENT ((berth_status)1) // the caller's value is wrong, whatever the state
#define BERTH_NOT_FOUND        ((berth_status)2) // a name, file or entry does not exist
#define BERTH_ALREADY_EXISTS   ((berth_status)3) // the name is taken and `replace` was not given
#define BERTH_UNSUPPORTED      ((berth_status)4) // valid, but this build, device or slot lacks it
#define BERTH_DECLINED         ((berth_status)5) // a platform's normal answer: no such hardware here
#define BERTH_WRONG_STATE      ((berth_status)6)  // right call, wrong moment (lifecycle, phase)
#define BERTH_OUT_OF_MEMORY    ((berth_status)7)  // host or device memory, or a stated limit
#define BERTH_UNAVAILABLE      ((berth_status)8)  // a device or service that should answer does not
#define BERTH_CORRUPT          ((berth_status)9)  // the content of a file contradicts its format
#define BERTH_IO               ((berth_status)10) // the operating system refused a read or a write
#define BERTH_INCOMPATIBLE     ((berth_status)11) // ABI ranges without overlap, wrong architecture
#define BERTH_SEALED           ((berth_status)12) // registration after the tables were frozen
#define BERTH_INTERNAL         ((berth_status)13) // a defect in berth or in a plugin

#if defined(__GNUC__)
#define BERTH_MUST_CHECK                  __attribute__((warn_unused_result))
#define BERTH_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define BERTH_MUST_CHECK
#define BERTH_PRINTF(format_index, first)
#endif

#endif
