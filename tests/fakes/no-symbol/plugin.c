// SPDX-License-Identifier: Apache-2.0
// A library that is no plugin: berth_plugin_v1 is missing.
extern int berth_fake_without_symbol(void);
int berth_fake_without_symbol(void) {
    return 1;
}
