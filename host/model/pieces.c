// SPDX-License-Identifier: Apache-2.0
// Input: a declared parameter, the tensors that carry its name. Output: which of them fills which
// part of the weight. A tensor may be the whole, one of the shards, or one slice of the first
// dimension (of experts each has a tensor of its own), and of these a rank's part.
#include "model/pieces.h"

#include <inttypes.h>
#include <string.h>

#include "base/convert.h"
#include "base/text.h"

#define TEXT_BYTES 1024

// What is being filled.
typedef struct filling {
    berth_weight_names *names;
    const berth_parameter *declared;
    berth_missing_names *missing;
    berth_weight *weight;
    struct berth_weight_piece *pieces; // the weight's own
    uint32_t first;                    // source of this name
} filling;

// ---- what a tensor must look like ---------------------------------------------------------------

static void print_shape(berth_text *text, const int64_t *shape, uint64_t ndim) {
    berth_text_add_char(text, '[');
    for (uint64_t i = 0; i < ndim; ++i) {
        berth_text_add_format(text, "%s%" PRId64, i == 0 ? "" : ", ", shape[i]);
    }
    berth_text_add_char(text, ']');
}

static berth_status wrong_shape(const berth_stored_tensor *tensor, const int64_t *wanted,
                                uint64_t ndim) {
    berth_text text;
    berth_text_init(&text, TEXT_BYTES);
    print_shape(&text, tensor->shape, tensor->ndim);
    berth_text_add_cstr(&text, ", the model needs ");
    print_shape(&text, wanted, ndim);
    const char *shapes = NULL;
    berth_status status = berth_text_finish(&text, &shapes);
    if (status == BERTH_OK) {
        status = BERTH_FAIL(CORRUPT,
                            "%s: tensor '%s' has the shape %s; config.json and the weights "
                            "belong to different models",
                            berth_safetensors_path(tensor->file), tensor->name, shapes);
    }
    berth_text_deinit(&text);
    return status;
}

static void swap(int64_t *a, int64_t *b) {
    const int64_t kept = *a;
    *a = *b;
    *b = kept;
}

static berth_status check_dtype(const berth_parameter *declared,
                                const berth_stored_tensor *tensor) {
    const char *wanted = declared->dtype;
    const bool is_any = wanted == NULL || strcmp(wanted, "float") == 0;
    const berth_dtype dtype = is_any ? BERTH_DTYPE_F32 : berth_dtype_find(berth_str_from(wanted));
    if (tensor->dtype == dtype || (berth_can_convert(tensor->dtype) && berth_can_convert(dtype))) {
        return BERTH_OK;
    }
    return BERTH_FAIL(UNSUPPORTED, "%s: tensor '%s' is %s; %s can be loaded",
                      berth_safetensors_path(tensor->file), tensor->name,
                      berth_dtype_name(tensor->dtype),
                      is_any ? "weights in bf16, f16 and f32" : wanted);
}

// One number, with or without a dimension.
static berth_status check_number(const berth_parameter *declared,
                                 const berth_stored_tensor *tensor) {
    static const int64_t one = 1;
    const bool is_one = tensor->ndim == 0 || (tensor->ndim == 1 && tensor->shape[0] == 1);
    return is_one ? check_dtype(declared, tensor) : wrong_shape(tensor, &one, 1);
}

static berth_status check_piece(const berth_parameter *declared,
                                const struct berth_weight_piece *piece) {
    const berth_stored_tensor *tensor = piece->tensor;
    const uint64_t lacks = piece->slice >= 0 ? 1 : 0;
    if (declared->is_per_tensor != 0) {
        return check_number(declared, tensor);
    }
    const uint64_t ndim = declared->ndim - lacks;
    int64_t wanted[BERTH_MAX_DIMS + 1] = {0};
    for (uint64_t i = 0; i < ndim; ++i) {
        wanted[i] = i + lacks == piece->dim ? piece->stored_extent : declared->shape[i + lacks];
    }
    if (piece->is_transposed && ndim >= 2) {
        swap(&wanted[ndim - 1], &wanted[ndim - 2]);
    }
    if (tensor->ndim != ndim || memcmp(tensor->shape, wanted, ndim * sizeof wanted[0]) != 0) {
        return wrong_shape(tensor, wanted, ndim);
    }
    return check_dtype(declared, tensor);
}

// Of a slice a part runs along one of the dimensions that the tensor has.
static struct berth_weight_piece within_slice(const berth_parameter *declared,
                                              struct berth_weight_piece piece) {
    if (piece.dim == 0) {
        piece.dim = 1;
        piece.offset = 0;
        piece.stored_offset = 0;
        piece.extent = declared->shape[1];
        piece.stored_extent = declared->shape[1];
    }
    return piece;
}

// The piece is taken as one of the slice `slice`; −1: of the whole. A tensor may lack a first
// dimension of 1, of which it then is the only slice.
static berth_status add_piece(const filling *in, uint32_t index, struct berth_weight_piece piece,
                              int64_t slice) {
    const berth_parameter *declared = in->declared;
    berth_weight_source *source = &in->names->sources[index];
    source->is_used = true;
    piece.tensor = source->tensor;
    piece.slice = slice;
    if (declared->ndim > 1 && declared->shape[0] == 1 && piece.tensor->ndim + 1 == declared->ndim) {
        piece.slice = 0;
    }
    piece = piece.slice >= 0 ? within_slice(declared, piece) : piece;
    piece.is_transposed =
        (source->is_transposed || declared->is_transposed != 0) && piece.tensor->ndim >= 2;
    in->weight->is_log_decay = in->weight->is_log_decay || source->is_log_decay;
    BERTH_TRY(check_piece(declared, &piece));
    in->pieces[in->weight->piece_count++] = piece;
    return BERTH_OK;
}

static berth_status remember_missing(const filling *in, const char *shard, int64_t slice) {
    const char *text = berth_weight_names_stored(in->names, in->declared->name, shard, slice);
    return text == NULL
               ? berth_arena_exhausted(in->names->arena, "weight names")
               : berth_array_push(in->missing,
                                  (berth_missing_tensor){.name = text, .weight = in->weight});
}

// ---- one tensor for all -------------------------------------------------------------------------

berth_shard berth_shard_at(const berth_parameter *declared, uint64_t index) {
    const berth_shard *given = declared->shards[index];
    berth_shard own = {.size = sizeof own};
    memcpy(&own, given, given->size < sizeof own ? given->size : sizeof own);
    return own;
}

// Rows of the checkpoint that all shards come from, before the shard `end`.
static int64_t stored_rows(const berth_parameter *declared, uint64_t end) {
    int64_t rows = 0;
    for (uint64_t i = 0; i < end; ++i) {
        const berth_shard shard = berth_shard_at(declared, i);
        rows += shard.stored_extent > 0 ? shard.stored_extent : shard.extent;
    }
    return rows;
}

static struct berth_weight_piece piece_of(const berth_parameter *declared, uint64_t index) {
    const berth_shard shard = berth_shard_at(declared, index);
    return (struct berth_weight_piece){
        .dim = (uint64_t)declared->output_dim,
        .offset = shard.offset,
        .extent = shard.extent,
        .stored_offset = shard.stored_extent > 0 ? shard.stored_offset : 0,
        .stored_extent = shard.stored_extent > 0 ? shard.stored_extent : shard.extent,
    };
}

// A rank's slices out of a tensor that has those of all, each as the parameter has it.
static struct berth_weight_piece slices_piece(const berth_parameter *declared) {
    return (struct berth_weight_piece){
        .extent = declared->shape[0],
        .stored_offset = declared->stored_slice_offset,
        .stored_extent = declared->stored_slice_extent,
    };
}

// The parts of a rank where all shards lie in one tensor, one behind the other.
static berth_status split_whole(const filling *in, uint32_t whole) {
    const berth_parameter *declared = in->declared;
    for (uint64_t i = 0; i < declared->shard_count; ++i) {
        struct berth_weight_piece piece = piece_of(declared, i);
        piece.stored_offset += stored_rows(declared, i);
        piece.stored_extent = stored_rows(declared, declared->shard_count);
        BERTH_TRY(add_piece(in, whole, piece, -1));
    }
    return BERTH_OK;
}

// The whole of a parameter, or a rank's part of it along one dimension.
static struct berth_weight_piece whole_piece(const berth_parameter *declared) {
    const bool is_output = declared->stored_output_extent > 0;
    const bool is_input = declared->stored_input_extent > 0;
    struct berth_weight_piece piece = {
        .dim = is_output  ? (uint64_t)declared->output_dim
               : is_input ? (uint64_t)declared->input_dim
                          : 0,
        .stored_offset = is_output  ? declared->stored_output_offset
                         : is_input ? declared->stored_input_offset
                                    : 0,
    };
    piece.extent = declared->ndim == 0 ? 1 : declared->shape[piece.dim];
    piece.stored_extent = is_output  ? declared->stored_output_extent
                          : is_input ? declared->stored_input_extent
                                     : piece.extent;
    int64_t left = piece.stored_extent - piece.stored_offset;
    if (is_output && declared->stored_output_count > 0 && declared->stored_output_count < left) {
        left = declared->stored_output_count;
    }
    piece.extent = left >= piece.extent ? piece.extent : left > 0 ? left : 0;
    return piece;
}

static bool is_padded(const berth_parameter *declared) {
    const struct berth_weight_piece piece = whole_piece(declared);
    return declared->ndim > 0 && piece.extent < declared->shape[piece.dim];
}

// The one number of all shards.
static berth_status share_whole(const filling *in, uint32_t whole) {
    for (uint64_t i = 0; i < in->declared->shard_count; ++i) {
        BERTH_TRY(add_piece(in, whole, piece_of(in->declared, i), -1));
    }
    return BERTH_OK;
}

static berth_status fill_whole(const filling *in, uint32_t whole) {
    const berth_parameter *declared = in->declared;
    if (declared->is_per_tensor != 0 && declared->shard_count > 0) {
        return share_whole(in, whole);
    }
    if (declared->stored_slice_extent > 0) {
        return add_piece(in, whole, slices_piece(declared), -1);
    }
    const bool is_split =
        declared->shard_count > 0 &&
        stored_rows(declared, declared->shard_count) != declared->shape[declared->output_dim];
    in->weight->is_padded = !is_split && is_padded(declared);
    return is_split ? split_whole(in, whole) : add_piece(in, whole, whole_piece(declared), -1);
}

// ---- one tensor for every shard, for every slice ------------------------------------------------

static berth_status fill_shards(const filling *in) {
    for (uint64_t i = 0; i < in->declared->shard_count; ++i) {
        const char *id = in->declared->shards[i]->id;
        uint32_t index = BERTH_NO_SOURCE;
        BERTH_TRY(berth_weight_names_find(in->names, in->first, id, &index));
        BERTH_TRY(index == BERTH_NO_SOURCE ? remember_missing(in, id, -1)
                                           : add_piece(in, index, piece_of(in->declared, i), -1));
    }
    return BERTH_OK;
}

// The shard that a source fills, without shards 0; a number that is none when it fills no part.
static uint64_t shard_of(const berth_parameter *declared, const berth_weight_source *source) {
    if (source->shard == NULL || declared->shard_count == 0) {
        return source->shard == NULL && declared->shard_count == 0 ? 0 : UINT64_MAX;
    }
    uint64_t found = 0;
    while (found < declared->shard_count &&
           strcmp(source->shard, declared->shards[found]->id) != 0) {
        ++found;
    }
    return found;
}

// The slices of the parameter among those that the checkpoint has, all but for a rank's part.
typedef struct slices {
    int64_t first;
    int64_t count;
    int64_t stored;
} slices;

static slices slices_of(const berth_parameter *declared) {
    const bool is_part = declared->output_dim == 0 && declared->stored_output_extent > 0;
    const bool has_slices = declared->stored_slice_extent > 0;
    return (slices){
        .first = has_slices ? declared->stored_slice_offset
                 : is_part  ? declared->stored_output_offset
                            : 0,
        .count = declared->shape[0],
        .stored = has_slices ? declared->stored_slice_extent
                  : is_part  ? declared->stored_output_extent
                             : declared->shape[0],
    };
}

// Every source to its place, `places` [slices, shards]. What has none is left to be reported as
// unknown to the model.
static berth_status sort_sources(const filling *in, uint32_t *places, uint64_t shards) {
    const slices all = slices_of(in->declared);
    for (uint32_t i = in->first; i != BERTH_NO_SOURCE; i = in->names->sources[i].next) {
        berth_weight_source *source = &in->names->sources[i];
        const uint64_t shard = shard_of(in->declared, source);
        if (source->slice < 0 || source->slice >= all.stored || shard >= shards) {
            continue;
        }
        source->is_used = true; // perhaps by another rank
        if (source->slice < all.first || source->slice >= all.first + all.count) {
            continue;
        }
        uint32_t *place = &places[(uint64_t)(source->slice - all.first) * shards + shard];
        if (*place != BERTH_NO_SOURCE) {
            return berth_weight_names_same(in->names, *place, i);
        }
        *place = i;
    }
    return BERTH_OK;
}

static berth_status fill_places(const filling *in, const uint32_t *places, uint64_t shards) {
    const berth_parameter *declared = in->declared;
    const slices all = slices_of(declared);
    for (uint64_t i = 0; i < (uint64_t)all.count * shards; ++i) {
        const uint64_t shard = i % shards;
        const int64_t slice = (int64_t)(i / shards);
        const bool is_sharded = declared->shard_count > 0;
        const char *id = is_sharded ? declared->shards[shard]->id : NULL;
        if (places[i] == BERTH_NO_SOURCE) {
            BERTH_TRY(remember_missing(in, id, all.first + slice));
        } else {
            BERTH_TRY(add_piece(in, places[i],
                                is_sharded ? piece_of(declared, shard) : whole_piece(declared),
                                slice));
        }
    }
    return BERTH_OK;
}

// So many slices that a checkpoint could hold them, else nothing is reserved for them.
static berth_status fill_slices(const filling *in) {
    const berth_parameter *declared = in->declared;
    const uint64_t shards = declared->shard_count > 0 ? declared->shard_count : 1;
    if (declared->ndim < 2 || (uint64_t)declared->shape[0] > in->names->count) {
        return remember_missing(in, NULL, declared->ndim < 2 ? 0 : (int64_t)in->names->count);
    }
    const uint64_t count = (uint64_t)declared->shape[0] * shards;
    uint32_t *places = BERTH_ARENA_ARRAY(in->names->arena, uint32_t, count);
    if (places == NULL) {
        return berth_arena_exhausted(in->names->arena, "weights");
    }
    memset(places, 0xff, count * sizeof *places); // BERTH_NO_SOURCE
    BERTH_TRY(sort_sources(in, places, shards));
    return fill_places(in, places, shards);
}

// ---- entry point --------------------------------------------------------------------------------

// A weight that is stored under both of its names is one weight: the second is not left over.
static void use_all(const berth_weight_names *names, uint32_t first) {
    for (uint32_t i = first; i != BERTH_NO_SOURCE; i = names->sources[i].next) {
        names->sources[i].is_used = true;
    }
}

static size_t count_sources(const berth_weight_names *names, uint32_t first) {
    size_t count = 0;
    for (uint32_t i = first; i != BERTH_NO_SOURCE; i = names->sources[i].next) {
        ++count;
    }
    return count;
}

static berth_status fill(const filling *in) {
    uint32_t whole = BERTH_NO_SOURCE;
    if (in->first == BERTH_NO_SOURCE && in->declared->is_optional != 0) {
        return BERTH_OK;
    }
    if (in->first != BERTH_NO_SOURCE && in->names->sources[in->first].slice >= 0) {
        return fill_slices(in);
    }
    BERTH_TRY(berth_weight_names_find(in->names, in->first, NULL, &whole));
    return whole != BERTH_NO_SOURCE        ? fill_whole(in, whole)
           : in->declared->shard_count > 0 ? fill_shards(in)
                                           : remember_missing(in, NULL, -1);
}

berth_status berth_pieces_find(berth_weight_names *names, const berth_parameter *declared,
                               berth_missing_names *missing, berth_weight *weight) {
    filling in = {
        .names = names,
        .declared = declared,
        .missing = missing,
        .weight = weight,
        .first = berth_weight_names_first(names, declared->name),
    };
    const uint32_t second = berth_weight_names_first(names, declared->alias);
    if (in.first == BERTH_NO_SOURCE) {
        in.first = second;
    } else if (second != in.first) {
        use_all(names, second);
    }
    const size_t sources = count_sources(names, in.first);
    const size_t room = sources > declared->shard_count ? sources : declared->shard_count + 1;
    in.pieces = BERTH_ARENA_ARRAY(names->arena, struct berth_weight_piece, room);
    if (in.pieces == NULL) {
        return berth_arena_exhausted(names->arena, "weights");
    }
    weight->pieces = in.pieces;
    return fill(&in);
}
