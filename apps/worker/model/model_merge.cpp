// dsworker model merge: adds a trained adapter to the weights of its model.
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/log.h"
#include "base/terminal/progress.h"
#include "graph/adapter/merged_model.h"
#include "graph/archive/model.h"
#include "runtime/save/save_weights.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/disk/output_place.h"
#include "storage/export/weight_export.h"
#include "storage/files/atomic_file.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "worker/model/model_commands.h"
#include "worker/roles.h"

namespace dslaunch::worker {
namespace {

struct MergeArguments {
    std::string model, adapter, out;
    bool trust_model = false;
    bool force = false;
};

// Updates config.json in FOLDER with the changes that the adapter makes to the model's form.
void change_config(const std::string& folder, const graph::MergedModel& merged) {
    if (!merged.unties && !merged.changes_vocabulary) return;
    const std::string path = folder + "/config.json";
    auto json = nlohmann::ordered_json::parse(read_file(path, size_t{1} << 30));
    const auto set = [&](const char* name, const nlohmann::ordered_json& value) {
        // If a model has several parts, transformers reads this field from `text_config`.
        if (json.contains("text_config") && json["text_config"].is_object())
            json["text_config"][name] = value;
        json[name] = value;
    };
    if (merged.unties) set("tie_word_embeddings", false);
    if (merged.changes_vocabulary) set("vocab_size", merged.vocabulary);
    storage::write_atomically(path, json.dump(2) + "\n");
}

void run_merge(const MergeArguments& arguments) {
    const std::string model = storage::model_at(arguments.model);
    const std::string adapter = storage::adapter_at(arguments.adapter);
    storage::require_not_input(arguments.out, model);
    storage::require_not_input(arguments.out, adapter);
    storage::require_room_for_model(arguments.out);
    const std::optional<std::string> folder = storage::model_folder_of(model);
    if (folder) storage::require_room_for_config(*folder, arguments.out);
    storage::require_unused(arguments.out, arguments.force);
    if (const std::string other = storage::other_base_text(adapter, model); !other.empty())
        log_warn("adapter", "{}", other);
    Progress progress("model", "adding the adapter to the weights");
    graph::MergedModel merged =
        graph::load_merged(model, adapter, graph::trust_of(arguments.trust_model));
    progress.begin("writing the weights");
    runtime::WeightWriter writer(merged.model, arguments.out, {});
    writer.finish();
    if (folder) {
        storage::copy_model_config(*folder, arguments.out);
        // The adapter's own files describe the tokens that it added.
        if (merged.changes_vocabulary) storage::copy_text_files(adapter, arguments.out);
        change_config(arguments.out, merged);
    }
    progress.end();
    log_info("model", "wrote {0}/model.safetensors and {0}/model.pt, layers={1}", arguments.out,
             merged.layers);
}

}  // namespace

std::function<void()> add_model_merge(CommandLine& app) {
    const auto arguments = std::make_shared<MergeArguments>();
    CommandLine& merge = app.subcommand(
        "merge", {.does = "Adds a trained adapter to the weights of its model. The result is a "
                          "model like any other, and a Hugging Face folder if MODEL is one.",
                  .examples = {"dslaunch model merge Qwen2.5-0.5B run/adapter -o tuned"},
                  .docs = "docs/guide/lora.md"});
    merge.add("MODEL", arguments->model, "an archive or a Hugging Face folder").required();
    merge
        .add("ADAPTER", arguments->adapter,
             "an adapter folder in PEFT's format, or the --output folder of a job with --lora")
        .required();
    merge.add("-o,--output DIR", arguments->out, "folder for model.pt and model.safetensors")
        .required();
    merge.add("--force", arguments->force, storage::kForceHelp);
    merge.add("--trust-model", arguments->trust_model, kTrustModelHelp);
    return [arguments] { run_merge(*arguments); };
}

}  // namespace dslaunch::worker
