// SPDX-License-Identifier: Apache-2.0
// Entries of a cache on disk: bytes that one process found out and another may take over, a file an
// entry. A file says itself what it was made for and whether it is whole, so that it may be lost,
// cut, or made by another version at any time; and it is never more than a saving of time.
//
// It is only as trustworthy as its directory: a checksum finds damage and nobody's intent.
#ifndef BERTH_BASE_CACHE_H
#define BERTH_BASE_CACHE_H

#include <stddef.h>

#include "base/status.h"
#include "base/str.h"

#define BERTH_CACHE_LIMIT_BYTES ((size_t)16 << 20) // of a file

// `key` is all that the content rests on (versions, device); both may be of any bytes.
typedef struct berth_cache_entry {
    berth_str key;
    berth_str content;
} berth_cache_entry;

// The bytes of the entry's file; berth_free them. OUT_OF_MEMORY beyond the limit, too.
BERTH_MUST_CHECK berth_status berth_cache_encode(const berth_cache_entry *entry, char **out_file,
                                                 size_t *out_bytes);
// The entry in a file of any bytes; borrowed from `file`. CORRUPT: it is no such file, or no
// longer.
BERTH_MUST_CHECK berth_status berth_cache_decode(berth_str file, berth_cache_entry *out);

#endif
