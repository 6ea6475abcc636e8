// dsworker compress: writes a folder in the layout of compressed-tensors.
#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/memory_limits.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "compress/compressed_folder.h"
#include "graph/models/transformer.h"
#include "storage/files/input_file.h"
#include "storage/huggingface/model_folder.h"
#include "worker/compress/compress_parts.h"
#include "worker/compress/torch_layer.h"
#include "worker/data/token_rows.h"

namespace dslaunch::worker {
namespace {

using compress::FolderForm;
using compress::RoundingForm;
using storage::InputRounding;

// The bits of a form, and its default group and kind of scale; options may replace the defaults.
struct NamedForm {
    const char* name;
    int bits;
    int64_t group;
    bool has_minimum;
};
constexpr NamedForm kIntegers[] = {
    {"int8", 8, 128, false}, {"int4", 4, 32, true}, {"int3", 3, 32, true}, {"int2", 2, 32, true}};

FolderForm form_of(const CompressArguments& arguments, const storage::TransformerConfig& config) {
    FolderForm form{arguments.to, {}, InputRounding::kNone, true};
    RoundingForm& rounding = form.rounding;
    // 16 bits are enough for a scale, because codes are chosen for the scale as it is stored.
    rounding.scale = config.dtype == DType::kBF16 ? DType::kBF16 : DType::kF16;
    for (const NamedForm& named : kIntegers)
        if (arguments.to == named.name) {
            if (arguments.group > 0 && arguments.group < compress::kLeastGroup)
                fail(ExitCode::kUsage,
                     "--group {}: the smallest group has {} weights; 0 is the whole row",
                     arguments.group, compress::kLeastGroup);
            rounding.bits = named.bits;
            rounding.has_minimum =
                arguments.has_minimum || (named.has_minimum && !arguments.is_symmetric);
            rounding.group = arguments.group < 0 ? named.group : arguments.group;
            rounding.searches = named.bits <= 4;
            return form;
        }
    if (arguments.has_minimum || arguments.group > 0)
        fail(ExitCode::kUsage,
             "{0}: leave {0} out, since the form {1} always has one scale for each row and no "
             "minimum",
             arguments.has_minimum ? "--minimum" : "--group", arguments.to);
    form.is_packed = false;
    rounding.is_float = arguments.to == "fp8";
    form.inputs = rounding.is_float ? InputRounding::kE4m3 : InputRounding::kInt8;
    return form;
}

}  // namespace

std::vector<std::vector<int32_t>> calibration_texts(const CompressArguments& arguments,
                                                    const storage::TransformerConfig& config) {
    const std::string& path = arguments.calibrate;
    storage::require_data(path, arguments.model);
    if (!path.ends_with(".safetensors"))
        fail(ExitCode::kInput,
             "--calibrate {}: expected rows in .safetensors, as `dslaunch data prepare` makes them",
             printable(path));
    const TokenRows rows(path);
    if (const std::string other = rows.other_vocabulary(arguments.model); !other.empty())
        log_warn("compress", "{}: {}", path, other);
    std::vector<std::vector<int32_t>> texts;
    for (int64_t row = 0; row < std::min(rows.count(), arguments.calibration_rows); ++row) {
        const std::vector<int32_t> tokens = rows.tokens(row);
        const auto padding = static_cast<int64_t>(padding_of(tokens, rows.targets(row)));
        const int64_t used = std::ssize(tokens) - padding;
        for (const Range& document : rows.documents(row)) {
            const int64_t end = std::min(document.end(), used);
            if (end <= document.begin) continue;
            if (end - document.begin > config.context)
                fail(ExitCode::kInput,
                     "--calibrate {}: row {} has a text of {} tokens, but the model has {} "
                     "positions",
                     printable(path), row, end - document.begin, config.context);
            texts.emplace_back(tokens.begin() + document.begin, tokens.begin() + end);
        }
    }
    for (const std::vector<int32_t>& text : texts)
        for (const int32_t token : text)
            if (token < 0 || token >= config.vocabulary)
                fail(ExitCode::kInput,
                     "--calibrate {}: token {} is outside the model's vocabulary of {}",
                     printable(path), token, config.vocabulary);
    if (texts.empty()) fail(ExitCode::kInput, "--calibrate {}: has no tokens", printable(path));
    return texts;
}

namespace {

// Throws if the method of ARGUMENTS does not fit the other options.
void require_method(const CompressArguments& arguments, const FolderForm& form) {
    const std::string& method = arguments.method;
    const bool has_rows = !arguments.calibrate.empty();
    if ((method == "gptq" || method == "autoround") && !has_rows)
        fail(ExitCode::kUsage,
             "--method {}: needs rows of text: make them with `dslaunch data prepare`, and name "
             "them with --calibrate",
             method);
    if (method == "nearest" && has_rows)
        fail(ExitCode::kUsage,
             "--method nearest: uses no text: leave out --calibrate, or choose gptq or autoround");
    if (method == "autoround" && form.inputs != InputRounding::kNone)
        fail(ExitCode::kUsage,
             "--method autoround: rounds weights to int8, int4, int3 or int2; for {} use gptq",
             form.name);
}

// Returns the task that ARGUMENTS describe. FOLDER is the model that they name.
compress::FolderTask task_of(const CompressArguments& arguments,
                             const storage::ModelFolder& folder) {
    compress::FolderTask task;
    task.from = arguments.model;
    task.folder = &folder;
    task.out = arguments.out;
    task.form = form_of(arguments, folder.config);
    require_method(arguments, task.form);
    if (!arguments.calibrate.empty()) {
        task.texts = calibration_texts(arguments, folder.config);
        task.frequencies = graph::rotary_frequencies(folder.config);
    }
    if (arguments.method == "autoround") {
        task.layer_function = torch_layers(folder.config);
        task.descent.steps = arguments.iterations;
    }
    task.is_forced = arguments.force;
    task.requires_groups = arguments.group > 0;
    task.memory = tightest_share(read_memory_state().limits, 1);
    return task;
}

}  // namespace

void require_folder_form(const CompressArguments& arguments) {
    const storage::ModelFolder folder = storage::open_model_folder(arguments.model);
    compress::require_compressible(task_of(arguments, folder));
}

CompressedModel compress_to_folder(const CompressArguments& arguments, kernels::ThreadTeam& team) {
    const storage::ModelFolder folder = storage::open_model_folder(arguments.model);
    compress::FolderTask task = task_of(arguments, folder);
    if (task.layer_function) at::set_num_threads(team.threads());
    Progress progress("compress", "compressing", std::ssize(folder.config.layers), "layers");
    task.progress = [&](int64_t layers) { progress.done(layers); };
    compress::FolderResult made = compress::compress_folder(task, team);
    progress.end();
    if (made.layers_kept > 0)
        log_info("compress", "{} had been finished by an earlier run",
                 counted(made.layers_kept, "layer"));
    CompressedModel model{made.weights,       made.weight_bytes_before, made.weight_bytes_after,
                          made.bytes_before,  made.bytes_after,         {},
                          !task.texts.empty()};
    for (compress::WeightError& weight : made.errors)
        model.losses.push_back({std::move(weight.name), weight.error, weight.is_of_outputs});
    return model;
}

}  // namespace dslaunch::worker
