// dsworker model import: makes one archive from a Hugging Face folder, or such a folder from a GGUF
// file.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "graph/archive/model.h"
#include "graph/archive/scalar_types.h"
#include "graph/models/models.h"
#include "graph/models/save_archive.h"
#include "storage/disk/output_place.h"
#include "storage/gguf/gguf_file.h"
#include "storage/gguf_model/gguf_model_reader.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "worker/model/model_commands.h"

namespace dslaunch::worker {
namespace {

struct ImportArguments {
    std::string folder, out;
    std::string dtype;  // empty: as in the folder
    bool force = false;
};

DType dtype_of(const std::string& name) {
    if (name == "bf16") return DType::kBF16;
    return name == "fp16" ? DType::kF16 : DType::kF32;
}

// Makes a Hugging Face folder from the GGUF file that ARGUMENTS name.
void import_gguf_file(const ImportArguments& arguments) {
    storage::require_not_input(arguments.out, arguments.folder);
    storage::require_room_for_model(arguments.out);
    storage::require_unused(arguments.out, arguments.force);
    Progress progress("model", "writing the weights");
    storage::GgufImportOptions options;
    options.dtype = dtype_of(arguments.dtype);
    options.progress = [&](int64_t done, int64_t total) {
        if (done == 1) progress.begin("writing the weights", total, "weights");
        progress.done(done);
    };
    const int64_t numel = storage::import_gguf(arguments.folder, arguments.out, options);
    progress.end();
    log_info("model", "wrote {}/model.safetensors parameters={}", arguments.out, numel);
}

void run_import(const ImportArguments& arguments) {
    if (storage::is_gguf_file(arguments.folder)) return import_gguf_file(arguments);
    const std::string folder = storage::model_at(arguments.folder);
    if (!storage::model_folder_of(folder))
        fail(ExitCode::kInput,
             "{}: is a file, but `model import` needs a Hugging Face folder with a config.json; an "
             "archive can be used as a model without import",
             printable(folder));
    storage::require_not_input(arguments.out, folder);
    storage::require_new_file(arguments.out, arguments.force);
    Progress progress("model", "reading the model");
    graph::Model model = graph::Model::load(folder);
    if (!arguments.dtype.empty()) {
        const at::NoGradGuard no_grad;
        const at::ScalarType dtype = graph::scalar_type_of(dtype_of(arguments.dtype));
        for (const graph::ModelParameter& parameter : model.parameters()) {
            at::Tensor tensor = parameter.tensor;
            tensor.set_data(tensor.to(dtype));
        }
    }
    progress.begin("writing the archive");
    graph::save_archive(model.module(), arguments.out);
    progress.end();
    log_info("model", "wrote {} parameters={}", arguments.out,
             graph::parameters_numel(model.module()));
}

}  // namespace

std::function<void()> add_model_import(CommandLine& app) {
    const auto arguments = std::make_shared<ImportArguments>();
    CommandLine& import = app.subcommand(
        "import", {.does = "Makes one archive from a Hugging Face folder: forward(tokens, targets) "
                           "-> loss, logits(tokens). No import is needed to train: `dslaunch "
                           "FOLDER` trains the folder itself. From a GGUF file, makes a Hugging "
                           "Face folder.",
                   .examples = {"dslaunch model import Qwen2.5-0.5B -o train.pt",
                                "dslaunch model import Qwen2.5-0.5B-Q4_K_M.gguf -o Qwen2.5"},
                   .docs = "docs/guide/models.md"});
    import
        .add("MODEL", arguments->folder,
             "folder with config.json and .safetensors files, or a GGUF file")
        .required();
    import.add("-o,--output OUT", arguments->out, "archive to write; for a GGUF file, the folder")
        .required();
    import
        .add("--dtype NAME", arguments->dtype,
             "type of the weights: fp32, bf16 or fp16; default: as in the folder; fp32 for a GGUF "
             "file")
        .one_of({"fp32", "bf16", "fp16"});
    import.add("--force", arguments->force, storage::kForceHelp);
    return [arguments] { run_import(*arguments); };
}

}  // namespace dslaunch::worker
