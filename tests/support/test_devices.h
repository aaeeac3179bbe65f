// SPDX-License-Identifier: Apache-2.0
// Platforms that need no device, as one plugin, and a registry with whatever ops run on them.
//
//   fake-host     kind CPU, device type "cpu", host memory
//   fake-rocm     kind ROCM, device type "rocm", host memory
//   fake-streams  kind XPU, device type "xpu", host memory; test_queued_forward only queues, the
//                 work is done at synchronize
//   fake-device   kind OOT, device type "fake"; memory is handles: whoever takes one for an address
//                 crashes
//   fake-recording  the same; test_device_forward only notes its call while a step is recorded
#ifndef TEST_DEVICES_H
#define TEST_DEVICES_H

#include <berth/plugin.h>

#include "platform/platform.h"
#include "registry/registry.h"

// What a plugin named "content" adds; the pointers outlive the registry.
typedef struct test_content {
    const berth_op_impl *impls;
    size_t impl_count;
    const berth_op_impl *overrides;
    size_t override_count;
    const berth_op *const *ops;
    size_t op_count;
    const berth_pass *const *passes;
    size_t pass_count;
    // The slot of every platform above, NULL: not provided.
    berth_status (*get_attn_backend)(void *self, const berth_attention_query *query,
                                     const berth_attention_backend **out);
} test_content;

// The test ops, the platforms and the content, frozen.
berth_registry *test_devices_registry(const test_content *content);
berth_runtime *test_devices_open(const berth_registry *registry, const char *platform);

// Forwards for any op whose self is its site: its reference, on the host or through handles.
berth_status test_host_forward(void *self, const berth_op_args *args);
berth_status test_device_forward(void *self, const berth_op_args *args);
berth_status test_queued_forward(void *self, const berth_op_args *args);
// Implementations of every test op but describe for fake-device.
#define TEST_DEVICE_IMPLS 12
extern const berth_op_impl test_device_impls[TEST_DEVICE_IMPLS];
// Calls of the three since the registry was made.
uint64_t test_devices_calls(void);
// The address behind a handle of fake-device; fails the test when it is none.
void *test_devices_address(void *base);
// Allocations of fake-device that were not released.
size_t test_devices_live(void);
// So many allocations of fake-device still succeed; SIZE_MAX: all, as at first.
void test_devices_allow(size_t allocations);

#endif
