// SPDX-License-Identifier: Apache-2.0
// `berth graph`: the graph that a checkpoint becomes. No weight is read, and without --passes no
// device is touched; a platform's ops are known where there is a platform.
#include "graph/graph.h"
#include "cli/cli_private.h"
#include "model/model.h"

static void print_json(berth_session *session, const berth_model_build *build) {
    berth_json_writer json;
    berth_text text;
    berth_text_init(&text, session->out.limit);
    berth_graph_print(build->graph, &text);
    berth_session_json(session, &json);
    berth_json_begin_object(&json);
    berth_cli_put(&json, "architecture", build->architecture);
    berth_cli_put(&json, "quantization", build->quantization);
    berth_cli_put_u64(&json, "nodes", build->graph->node_count);
    berth_cli_put_u64(&json, "weights", build->weight_count);
    berth_json_put_key(&json, "text");
    berth_json_put_str(&json, berth_text_str(&text));
    berth_json_end_object(&json);
    berth_session_json_end(session);
    berth_text_deinit(&text);
}

static void print(berth_session *session, const berth_model_build *build) {
    if (session->config.is_json) {
        print_json(session, build);
    } else if (session->config.is_dot) {
        berth_graph_print_dot(build->graph, &session->out);
    } else {
        berth_graph_print(build->graph, &session->out);
    }
}

// As the worker of the platform plans it, which depends on what the platform can run.
static berth_status run_after_passes(berth_session *session) {
    berth_model_build *build = NULL;
    BERTH_TRY(berth_session_failure(session));
    session->stage = BERTH_STAGE_CHECKPOINT;
    const berth_status status = berth_worker_build_model(session->worker, &build);
    if (status == BERTH_OK) {
        print(session, build);
    }
    berth_model_destroy(build);
    return status;
}

static berth_status prepare(berth_session *session) {
    session->needs = session->config.is_after_passes ? BERTH_STAGE_WORKER : session->needs;
    return BERTH_OK;
}

static berth_status run(berth_session *session) {
    berth_checkpoint *checkpoint = NULL;
    berth_model_build *build = NULL;
    if (session->config.is_after_passes) {
        return run_after_passes(session);
    }
    session->stage = BERTH_STAGE_CHECKPOINT;
    BERTH_TRY(berth_checkpoint_open(session->config.model, &checkpoint));
    berth_status status = berth_model_create(session->registry, &session->config, checkpoint,
                                             BERTH_DTYPE_F32, &build);
    if (status == BERTH_OK) {
        print(session, build);
    }
    berth_model_destroy(build);
    berth_checkpoint_close(checkpoint);
    return status;
}

const berth_command berth_command_graph = {
    .name = "graph",
    .arguments = "",
    .help = "print the graph of a checkpoint",
    .details = "Without --passes no device is touched, and activations are float32.\n"
               "--json prints {architecture, quantization, nodes, weights, text}.",
    .bit = BERTH_COMMAND_GRAPH,
    .needs = BERTH_STAGE_TABLES,
    .flags = BERTH_CLI_MODEL | BERTH_CLI_ANY_PLATFORM,
    .prepare = prepare,
    .run = run,
};
