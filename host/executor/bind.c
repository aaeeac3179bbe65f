// SPDX-License-Identifier: Apache-2.0
// The calls of an implementation's and of an attention backend's slots at start-up; what a NULL
// slot means stands here. Their forward is called by run.c.
#include "executor/stages.h"

#include <string.h>

// ---- implementations ----------------------------------------------------------------------------

// What the plugin said, without the notes of who called whom: a record names both anyway.
static berth_status keep_reason(berth_plan *plan, const char **out_reason) {
    berth_status_report report;
    berth_status_take(&report);
    const char *said = report.frame_count > 0 ? report.text + report.frames[0].text_offset : "";
    *out_reason = berth_arena_strdup(plan->arena, said);
    return *out_reason != NULL ? BERTH_OK : berth_arena_exhausted(plan->arena, "dispatch records");
}

static bool is_default(const berth_op_attribute *declared, const berth_attribute *given) {
    const berth_attribute *usual = declared->default_value;
    if (given->kind == BERTH_ATTRIBUTE_NONE || usual == NULL) {
        return given->kind == BERTH_ATTRIBUTE_NONE;
    }
    return given->kind == usual->kind && given->i64 == usual->i64 && given->f64 == usual->f64 &&
           given->count == 0;
}

// What the site uses that came after the implementation was written, NULL: nothing.
static const char *younger_use(const berth_op_impl *impl, const berth_op_site *site) {
    const berth_op *op = site->op;
    for (uint64_t i = 0; i < op->input_count; ++i) {
        if (op->inputs[i]->since > impl->revision && site->inputs[i] != NULL) {
            return op->inputs[i]->name;
        }
    }
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        if (op->attributes[i]->since > impl->revision &&
            !is_default(op->attributes[i], site->attributes[i])) {
            return op->attributes[i]->name;
        }
    }
    return NULL;
}

berth_status berth_impl_supports(berth_plan *plan, const berth_op_impl *impl,
                                 const berth_owner *owner, const berth_op_site *site,
                                 const char **out_reason) {
    *out_reason = NULL;
    const char *younger = younger_use(impl, site);
    if (younger != NULL) {
        *out_reason =
            berth_arena_printf(plan->arena, "written for revision %llu of the op, without '%s'",
                               (unsigned long long)impl->revision, younger);
        return *out_reason != NULL ? BERTH_OK
                                   : berth_arena_exhausted(plan->arena, "dispatch records");
    }
    if (impl->supports == NULL) {
        return BERTH_OK;
    }
    berth_plugin_enter(owner, "supports");
    const berth_status status =
        berth_plugin_leave(impl->supports(site, berth_runtime_device(plan->runtime)));
    if (status == BERTH_UNSUPPORTED) {
        return keep_reason(plan, out_reason);
    }
    BERTH_TRY_NOTE(status, "asking '%s' about op '%s' of layer '%s'", impl->name, site->op->name,
                   site->layer);
    return BERTH_OK;
}

berth_status berth_impl_create(berth_plan *plan, berth_binding *binding) {
    binding->self = &binding->site;
    if (binding->impl == NULL || binding->impl->create == NULL) {
        return BERTH_OK;
    }
    void *self = NULL;
    berth_plugin_enter(binding->owner, "create");
    BERTH_TRY_NOTE(berth_plugin_leave(binding->impl->create(
                       &binding->site, berth_runtime_device(plan->runtime), &self)),
                   "creating '%s' for op '%s' of layer '%s'", binding->impl->name,
                   binding->site.op->name, binding->site.layer);
    binding->self = self;
    binding->is_created = true;
    return BERTH_OK;
}

void berth_impl_destroy(berth_binding *binding) {
    if (binding->is_created && binding->impl->destroy != NULL) {
        berth_plugin_enter(binding->owner, "destroy");
        binding->impl->destroy(binding->self);
        if (berth_plugin_leave(BERTH_OK) != BERTH_OK) {
            berth_status_clear();
        }
    }
    binding->is_created = false;
}

uint64_t berth_impl_workspace(const berth_plan *plan, const berth_binding *binding) {
    const uint64_t tokens = (uint64_t)plan->request.max_tokens;
    if (binding->impl != NULL) {
        return binding->impl->workspace != NULL ? binding->impl->workspace(binding->self, tokens)
                                                : 0;
    }
    return binding->op->op.reference_workspace != NULL
               ? binding->op->op.reference_workspace(&binding->site, tokens)
               : 0;
}

uint64_t berth_impl_packed_bytes(const berth_binding *binding, uint64_t input) {
    const bool is_parameter = (binding->site.parameter_mask >> input & 1u) != 0;
    if (!is_parameter || binding->impl == NULL || binding->impl->packed_bytes == NULL ||
        binding->impl->pack == NULL) {
        return 0;
    }
    return binding->impl->packed_bytes(&binding->site, input);
}

berth_status berth_impl_pack(const berth_binding *binding, uint64_t input,
                             const berth_tensor *source, const berth_tensor *destination) {
    berth_plugin_enter(binding->owner, "pack");
    BERTH_TRY_NOTE(
        berth_plugin_leave(binding->impl->pack(&binding->site, input, source, destination)),
        "packing input '%s' of op '%s' of layer '%s'", binding->op->op.inputs[input]->name,
        binding->op->op.name, binding->site.layer);
    return BERTH_OK;
}

bool berth_impl_packs_rows(const berth_binding *binding) {
    return binding->impl != NULL && binding->impl->pack_rows != NULL;
}

berth_status berth_impl_pack_rows(const berth_binding *binding, uint64_t input,
                                  const berth_tensor *source, int64_t first,
                                  const berth_tensor *destination) {
    berth_plugin_enter(binding->owner, "pack_rows");
    BERTH_TRY_NOTE(berth_plugin_leave(
                       binding->impl->pack_rows(&binding->site, input, source, first, destination)),
                   "packing input '%s' of op '%s' of layer '%s'",
                   binding->op->op.inputs[input]->name, binding->op->op.name, binding->site.layer);
    return BERTH_OK;
}

// ---- attention backends -------------------------------------------------------------------------

const berth_kv_cache_spec *berth_plan_cache(const berth_plan *plan, const char *layer) {
    for (size_t i = 0; i < plan->request.kv_cache_count; ++i) {
        if (strcmp(plan->request.kv_caches[i].layer, layer) == 0) {
            return &plan->request.kv_caches[i];
        }
    }
    return NULL;
}

static berth_attention_query query_of(const berth_plan *plan, const berth_op_site *site) {
    const berth_kv_cache_spec *cache = berth_plan_cache(plan, site->layer);
    berth_attention_query query = {.size = sizeof(query), .layer = site->layer};
    query.dtype = site->inputs[0] != NULL ? site->inputs[0]->dtype : BERTH_DTYPE_NONE;
    if (cache != NULL) {
        query.num_heads = cache->num_heads;
        query.num_kv_heads = cache->num_kv_heads;
        query.head_size = cache->head_size;
        query.block_size = cache->block_size;
        query.sliding_window = cache->sliding_window;
        query.kv_dtype = cache->dtype;
    }
    return query;
}

// The plan's own copy, since the platform's may be of another minor of the contract.
static berth_status copy_backend(berth_plan *plan, const berth_attention_backend *given,
                                 const berth_attention_backend **out_backend) {
    berth_attention_backend *backend = BERTH_ARENA_NEW(plan->arena, berth_attention_backend);
    berth_op_impl *impl = BERTH_ARENA_NEW(plan->arena, berth_op_impl);
    if (backend == NULL || impl == NULL) {
        return berth_arena_exhausted(plan->arena, "attention backends");
    }
    memcpy(backend, given, given->size < sizeof(*backend) ? given->size : sizeof(*backend));
    if (backend->name == NULL || backend->impl == NULL) {
        return BERTH_FAIL(INTERNAL, "the attention backend '%s' has no %s",
                          backend->name == NULL ? "?" : backend->name,
                          backend->name == NULL ? "name" : "impl");
    }
    const berth_op_impl *theirs = backend->impl;
    memcpy(impl, theirs, theirs->size < sizeof(*impl) ? theirs->size : sizeof(*impl));
    if (impl->name == NULL || impl->forward == NULL) {
        return BERTH_FAIL(INTERNAL, "the impl of attention backend '%s' has no %s", backend->name,
                          impl->name == NULL ? "name" : "forward");
    }
    backend->impl = impl;
    *out_backend = backend;
    return BERTH_OK;
}

berth_status berth_backend_find(berth_plan *plan, const berth_op_site *site,
                                const berth_attention_backend **out_backend,
                                const berth_owner **out_owner, const char **out_reason) {
    const berth_platform_entry *platform = berth_runtime_platform(plan->runtime);
    const berth_attention_query query = query_of(plan, site);
    const berth_attention_backend *given = NULL;
    *out_backend = NULL;
    *out_reason = NULL;
    berth_status status = berth_platform_attention(platform, &query, &given);
    if (status == BERTH_UNSUPPORTED) {
        return keep_reason(plan, out_reason);
    }
    BERTH_TRY_NOTE(status, "choosing the attention backend of layer '%s'", site->layer);
    *out_owner = platform->owner;
    BERTH_TRY(copy_backend(plan, given, out_backend));
    if ((*out_backend)->validate != NULL) {
        berth_plugin_enter(*out_owner, "validate");
        status = berth_plugin_leave((*out_backend)->validate(site->host, &query));
        if (status == BERTH_UNSUPPORTED) {
            return keep_reason(plan, out_reason);
        }
        BERTH_TRY_NOTE(status, "asking attention backend '%s' about layer '%s'",
                       (*out_backend)->name, site->layer);
    }
    return berth_impl_supports(plan, (*out_backend)->impl, *out_owner, site, out_reason);
}

static berth_status own_shape(const berth_plan *plan, const berth_binding *binding, uint64_t state,
                              int64_t num_blocks, berth_cache_shape *out_shape) {
    const berth_attention_query query = query_of(plan, &binding->site);
    uint64_t ndim = 0;
    berth_plugin_enter(binding->owner, "kv_cache_shape");
    BERTH_TRY_NOTE(berth_plugin_leave(binding->backend->kv_cache_shape(&query, state, num_blocks,
                                                                       out_shape->extents, &ndim)),
                   "shaping the cache of layer '%s'", binding->site.layer);
    bool is_shape = ndim > 0 && ndim <= BERTH_MAX_DIMS;
    for (uint64_t i = 0; is_shape && i < ndim; ++i) {
        is_shape = out_shape->extents[i] > 0;
    }
    if (!is_shape) {
        return BERTH_FAIL(INTERNAL, "kv_cache_shape of attention backend '%s' gave no shape",
                          binding->backend->name);
    }
    out_shape->ndim = (uint32_t)ndim;
    return BERTH_OK;
}

berth_status berth_backend_shape(const berth_plan *plan, const berth_binding *binding,
                                 uint64_t state, int64_t num_blocks, berth_cache_shape *out_shape) {
    if (binding->backend != NULL && binding->backend->kv_cache_shape != NULL) {
        return own_shape(plan, binding, state, num_blocks, out_shape);
    }
    const berth_kv_cache_spec *cache = berth_plan_cache(plan, binding->site.layer);
    const bool is_latent = cache->is_latent != 0;
    *out_shape = (berth_cache_shape){
        .extents = {num_blocks, cache->block_size,
                    is_latent ? cache->head_size : cache->num_kv_heads,
                    is_latent ? 1 : cache->head_size},
        .ndim = is_latent ? 3 : 4,
    };
    return BERTH_OK;
}
