// SPDX-License-Identifier: Apache-2.0
// Input: begin, the adds of one entry point, end. Output: all of its additions or none. Additions
// lie in one array and only one transaction is open, so taking back is cutting the array.
#include "registry/registry_private.h"

berth_status berth_transaction_begin(berth_registry *registry, const berth_owner *owner,
                                     berth_transaction **out) {
    if (registry->is_frozen) {
        return BERTH_FAIL(SEALED, "plugin '%s': nothing can be registered after the freeze",
                          owner->id);
    }
    if (registry->open != NULL) {
        return BERTH_FAIL(WRONG_STATE, "plugin '%s': another entry point is still running",
                          owner->id);
    }
    berth_transaction *transaction = BERTH_ARENA_NEW(registry->arena, berth_transaction);
    if (transaction == NULL) {
        return berth_arena_exhausted(registry->arena, "transactions");
    }
    transaction->owner = owner;
    transaction->owner_hash = berth_owner_hash(owner);
    transaction->first = (uint32_t)registry->additions.count;
    BERTH_TRY(berth_array_push(&registry->transactions, transaction));
    registry->open = transaction;
    *out = transaction;
    return BERTH_OK;
}

berth_status berth_transaction_end(berth_registry *registry, berth_status status) {
    berth_transaction *transaction = registry->open;
    registry->open = NULL;
    const berth_status result = transaction->failed != BERTH_OK ? transaction->failed : status;
    if (result == BERTH_OK) {
        return BERTH_OK;
    }
    registry->additions.count = transaction->first;
    registry->transactions.count -= 1;
    if (transaction->failed != BERTH_OK) {
        return berth_status_fail(result, __FILE__, __LINE__, "%s", transaction->reason);
    }
    return result;
}

void berth_transaction_drop(berth_registry *registry, berth_transaction *transaction,
                            const char *reason) {
    transaction->is_dropped = true;
    transaction->reason = reason;
    if (transaction->entry != NULL) {
        berth_entry_set(transaction->entry, BERTH_PLUGIN_REGISTER_FAILED, reason);
        berth_candidate_settle(registry, transaction->candidate);
    }
}

// The transaction of the entry point itself, which knows the candidate's record.
static const berth_transaction *find_entry(const berth_registry *registry,
                                           const berth_owner *owner) {
    for (size_t i = 0; i < registry->transactions.count; ++i) {
        const berth_transaction *one = registry->transactions.data[i];
        if (one->owner == owner && one->entry != NULL) {
            return one;
        }
    }
    return NULL;
}

berth_status berth_registry_transaction(berth_registry *registry, const berth_owner *owner,
                                        berth_register_fn body, void *self) {
    const berth_transaction *entry_point = find_entry(registry, owner);
    berth_transaction *transaction = NULL;
    BERTH_TRY(berth_transaction_begin(registry, owner, &transaction));
    transaction->is_late = true;
    if (entry_point != NULL) {
        transaction->entry = entry_point->entry;
        transaction->candidate = entry_point->candidate;
    }
    const berth_status status = berth_transaction_end(registry, body(self, &registry->registrar));
    if (status != BERTH_OK && transaction->entry != NULL) {
        berth_entry_set(transaction->entry, BERTH_PLUGIN_REGISTER_FAILED,
                        berth_reason(registry, "%s", berth_status_message()));
        berth_candidate_settle(registry, transaction->candidate);
    }
    return status;
}
