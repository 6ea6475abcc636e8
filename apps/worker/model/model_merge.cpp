// dsworker model merge MODEL ADAPTER: one model of both.
#include "worker/model/model_merge.h"

#include "base/log.h"
#include "graph/adapter/adapter_folder.h"
#include "graph/archive/model.h"
#include "runtime/save/save_weights.h"
#include "storage/export/weight_export.h"
#include "storage/huggingface/model_folder.h"
#include "worker/roles.h"

namespace dslaunch::worker {

void add_merge(CommandLine& app, MergeArguments& arguments) {
    CommandLine& merge = app.subcommand(
        "merge",
        {.does = "Adds an adapter to the weights of the model that it was trained beside. The "
                 "result is a model like any other, and a folder of Hugging Face if MODEL is one.",
         .examples = {"dslaunch model merge Qwen2.5-0.5B run/adapter -o tuned"},
         .docs = "docs/lora.md"});
    merge.add("MODEL", arguments.model, "an archive or a Hugging Face folder").required();
    merge.add("ADAPTER", arguments.adapter, "a folder as PEFT writes it").required();
    merge.add("-o,--out DIR", arguments.out, "folder for model.pt and model.safetensors")
        .required();
    merge.add("--trust-model", arguments.trust_model, kTrustModelHelp);
}

void run_merge(const MergeArguments& arguments) {
    storage::require_room_for_model(arguments.out);
    const std::optional<std::string> folder = storage::model_folder_of(arguments.model);
    if (folder) storage::require_room_for_config(*folder, arguments.out);
    graph::Model model = graph::Model::load(arguments.model, graph::Weights::kRequired,
                                            graph::trust_of(arguments.trust_model));
    const int layers = graph::merge_adapter_folder(model, arguments.model, arguments.adapter);
    runtime::WeightWriter writer(model, arguments.out, {});
    writer.finish();
    if (folder) storage::copy_model_config(*folder, arguments.out);
    log_info("model", "wrote {0}/model.safetensors and {0}/model.pt, layers={1}", arguments.out,
             layers);
}

}  // namespace dslaunch::worker
