// dsworker model import: makes one archive from a Hugging Face folder.
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

void run_import(const ImportArguments& arguments) {
    const std::string folder = storage::model_at(arguments.folder);
    if (!storage::model_folder_of(folder))
        fail(ExitCode::kInput,
             "{}: is a file, but `model import` needs a Hugging Face folder with a config.json; an "
             "archive can be used as a model without import",
             printable(folder));
    storage::require_new_file(arguments.out, arguments.force);
    Progress progress("model", "reading the model");
    graph::Model model = graph::Model::load(folder);
    if (!arguments.dtype.empty()) {
        const at::NoGradGuard no_grad;
        const at::ScalarType dtype =
            graph::scalar_type_of(arguments.dtype == "fp32"   ? DType::kF32
                                  : arguments.dtype == "bf16" ? DType::kBF16
                                                              : DType::kF16);
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
                           "FOLDER` trains the folder itself.",
                   .examples = {"dslaunch model import Qwen2.5-0.5B -o train.pt"},
                   .docs = "docs/guide/models.md"});
    import.add("FOLDER", arguments->folder, "folder with config.json and .safetensors files")
        .required();
    import.add("-o,--output FILE", arguments->out, "archive to write").required();
    import
        .add("--dtype NAME", arguments->dtype,
             "type of the weights: fp32, bf16 or fp16; default: as in the folder")
        .one_of({"fp32", "bf16", "fp16"});
    import.add("--force", arguments->force, storage::kForceHelp);
    return [arguments] { run_import(*arguments); };
}

}  // namespace dslaunch::worker
