#include "job/setup/set_up_job.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/zeros_like.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/words.h"
#include "config/read/train_config.h"
#include "config/resolve/begun_run.h"
#include "config/resolve/option_overrides.h"
#include "config/resolve/resolve.h"
#include "graph/archive/kept_layers.h"
#include "graph/archive/op_library.h"
#include "graph/archive/scalar_types.h"
#include "graph/compress/teacher_layers.h"
#include "graph/lower/device_rewrite.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/measure/measure.h"
#include "graph/models/text_model.h"
#include "graph/packed/packed_weight.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_tensor.h"
#include "job/setup/job_wire.h"
#include "job/setup/long_samples.h"
#include "job/setup/lower_options.h"
#include "job/setup/parameter_rules.h"
#include "job/setup/trial_batch.h"
#include "job/setup/written_parameters.h"
#include "storage/files/input_file.h"
#include "storage/files/zip_archive.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::job {

namespace {

constexpr const char* kConfigName = "ds_config.json";

// The config, and the folder to which its relative paths refer.
struct FoundConfig {
    config::TrainConfig config;
    std::string origin;
    std::string folder;
};

FoundConfig find_config(const JobArguments& arguments) {
    if (!arguments.config_path.empty())
        return {config::load_config(arguments.config_path), arguments.config_path,
                folder_of(arguments.config_path)};
    const std::optional<std::string> model_folder = storage::model_folder_of(arguments.model_path);
    const std::string beside =
        model_folder.value_or(folder_of(arguments.model_path)) + "/" + kConfigName;
    if (!model_folder) {
        const storage::ZipArchive archive(arguments.model_path);
        const std::string name = arguments.model_path + ":" + kConfigName;
        if (const auto text = archive.extra(kConfigName))
            return {config::parse_config(*text, name), name, folder_of(arguments.model_path)};
    }
    if (::access(beside.c_str(), F_OK) == 0)
        return {config::load_config(beside), beside, folder_of(beside)};
    return {config::empty_config(), "defaults", "."};
}

// Makes a relative path refer to the config's folder if the file exists there. For a config in an
// archive, this is the archive's folder. Otherwise the path stays relative to the working
// directory, like a path on the command line.
void place_path(std::string& path, const std::string& folder) {
    if (path.empty() || path.front() == '/') return;
    const std::string beside = folder + "/" + path;
    if (::access(beside.c_str(), F_OK) == 0) path = beside;
}

// Loads the operator libraries that are needed before the model can be read.
void load_libraries(const FoundConfig& found, const JobArguments& arguments) {
    config::Resolved resolved = config::resolve(found.config, {});
    config::require_named_libraries(resolved, !arguments.config_path.empty());
    for (std::string& file : resolved.config.op_libraries) place_path(file, found.folder);
    graph::load_op_libraries(resolved.config.op_libraries);
}

// The number of elements of MODEL's parameters, by type.
struct WeightTypes {
    explicit WeightTypes(const graph::Model& model) {
        for (const graph::ModelParameter& parameter : model.parameters()) {
            const at::Tensor& weight =
                parameter.packed ? parameter.packed->source() : parameter.tensor;
            if (!weight.is_floating_point()) continue;
            const at::ScalarType type = weight.scalar_type();
            (type == at::kHalf ? half : type == at::kBFloat16 ? bfloat16 : wide) += weight.numel();
        }
    }

    // Returns the more frequent 16-bit type; fp32 if no element has a 16-bit type.
    [[nodiscard]] DType narrow() const {
        if (half + bfloat16 == 0) return DType::kF32;
        return half > bfloat16 ? DType::kF16 : DType::kBF16;
    }
    // Returns narrow() if at least half of all elements have 16 bits, otherwise fp32.
    [[nodiscard]] DType main() const { return half + bfloat16 >= wide ? narrow() : DType::kF32; }

    int64_t half = 0, bfloat16 = 0, wide = 0;
};

// Returns advice on how to save PARAMETER in a type that can be trained.
std::string trainable_form(const graph::ModelParameter& parameter) {
    const at::ScalarType type = parameter.tensor.scalar_type();
    if (at::isComplexType(type))
        return "store the torch.view_as_real form as the parameter and compute with "
               "torch.view_as_complex(parameter), which trains the same numbers";
    if (type == at::kDouble)
        return "save the model with .float(), and use no .double() in its forward (weights, "
               "gradients and moments are fp32 here)";
    return "save the model with .float()";
}

// Checks the types of parameters and buffers. A type that cannot be trained is reported before
// anything is laid out for training, and a type that checkpoints cannot store is reported before
// there is something to save.
void check_types(const JobSetup& setup) {
    const std::vector<int> unused = setup.segmented->unused_parameters();
    const std::vector<graph::ModelParameter>& parameters = setup.model->parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
        const graph::ModelParameter& parameter = parameters[p];
        if (parameter.packed) continue;
        static_cast<void>(graph::dtype_of(parameter.name, parameter.tensor));
        const bool trained = parameter.tensor.requires_grad() &&
                             std::ranges::count(unused, static_cast<int>(p)) == 0;
        if (!trained || graph::is_trained_type(parameter.tensor.scalar_type())) continue;
        fail(ExitCode::kInput,
             "parameter {} is {}, a type that cannot be trained here: {}; or save it with "
             "requires_grad_(False) to leave it untrained",
             printable(parameter.name), c10::toString(parameter.tensor.scalar_type()),
             trainable_form(parameter));
    }
    for (const graph::ModelBuffer& buffer : setup.model->buffers())
        if (buffer.is_persistent) static_cast<void>(graph::dtype_of(buffer.name, buffer.tensor));
}

// Returns advice for an error in the model's graph: to compute in the 16-bit type of the weights.
// Returns an empty text if the weights are in fp32, or if the job already computes in their type.
std::string weights_type_text(const JobSetup& setup) {
    const DType weights = WeightTypes(*setup.model).narrow();
    if (weights == DType::kF32 || weights == setup.config().precision.compute) return "";
    const bool half = weights == DType::kF16;
    return fmt::format(
        "; weights are {}: if forward computes in that type, set {}.enabled to "
        "true ({})",
        half ? "float16" : "bfloat16", half ? "fp16" : "bf16", half ? "--fp16" : "--bf16");
}

// Removes dslaunch.data.context from the config if the data are rows, because rows set their own
// length. (The config may also be used with token files.) A context on the command line is refused
// when the rows are opened.
void leave_context_to_rows(config::Resolved& resolved) {
    config::DataConfig& data = resolved.config.data;
    if (data.context == 0 || !storage::is_row_file(data.train_path)) return;
    for (const config::ResolvedValue& value : resolved.values) {
        if (value.path != "dslaunch.data.context" || value.origin.starts_with("--")) continue;
        if (value.origin.starts_with("derived")) return;
        data.context = 0;
        resolved.notes.push_back(
            fmt::format("{}: dslaunch.data.context has no effect, because the data consists of "
                        "rows, which set their own length",
                        printable(value.origin)));
    }
}

// Clears the settings of DATA that concern files.
void leave_files(config::DataConfig& data) {
    data.train_path.clear();
    data.eval_path.clear();
    data.eval_fraction = 0;
    data.context = 0;
}

// Resolves the config. REQUIRES: the model is loaded. The number of steps in an epoch is known only
// after the data are open.
void resolve_config(JobSetup& setup, const FoundConfig& found, const JobArguments& arguments,
                    const runtime::Topology& place, const ContextChoice& context = {}) {
    config::ResolveOptions options;
    options.world_size = place.world_size();
    options.model_dtype = WeightTypes(*setup.model).main();
    options.model_is_folder = storage::model_folder_of(arguments.model_path).has_value();
    options.is_pretrained = options.model_is_folder && setup.model->has_weights();
    options.context = context.value;
    options.context_reason = context.why;
    if (setup.data) {
        // Only the caller that feeds a job knows how many samples there are.
        if (!arguments.fed_data) options.samples = setup.data->train.rows();
        if (const int64_t tokens = setup.data->train.tokens_read(); tokens > 0)
            options.sample_tokens = tokens;
    }
    setup.resolved = config::resolve(found.config, options);
    config::require_valid(setup.resolved);
    config::RunConfig& placed = setup.resolved.config;
    if (arguments.fed_data) leave_files(placed.data);
    place_path(placed.data.train_path, found.folder);
    place_path(placed.data.eval_path, found.folder);
    place_path(placed.lora.init, found.folder);
    place_path(placed.compression.distill.teacher, found.folder);
    place_path(placed.samples.file, found.folder);
    leave_context_to_rows(setup.resolved);
    for (std::string& folder : placed.offload.nvme_paths) place_path(folder, found.folder);
}

// Checks the indices in the data. OF_FOLDER is true for a Hugging Face folder, where `tokens` are
// tokens of its tokenizer.
void check_indices(const JobSetup& setup, bool of_folder) {
    for (const graph::ArgumentLimit& limit :
         graph::argument_limits(setup.segmented->lowered(), *setup.model)) {
        if (setup.data->train.tokens_per_sample() > 0) {
            setup.data->check_vocabulary(limit.rows);
        } else {
            setup.data->check_indices(limit.argument,
                                      {limit.rows, std::nullopt, "row of " + limit.table,
                                       of_folder && limit.argument == "tokens"});
        }
    }
}

runtime::DataRequest data_request(const JobSetup& setup) {
    return {setup.config().data, setup.config().loss, setup.segmented->arguments(),
            setup.segmented->argument_types()};
}

// Returns true if each sample is a pair of answers, a tensor of shape [2, length], but the loss is
// not for pairs.
bool has_pairs_without_loss(const JobSetup& setup) {
    if (!setup.data || setup.config().loss.is_preference()) return false;
    const std::vector<runtime::DataInput>& inputs = setup.data->train.inputs();
    return !inputs.empty() && std::ranges::all_of(inputs, [](const runtime::DataInput& input) {
        return input.dtype == at::kLong && input.sample_shape.size() == 2 &&
               input.sample_shape[0] == 2;
    });
}

[[noreturn]] void fail_pairs(const JobSetup& setup) {
    fail(ExitCode::kInput,
         "{}: its rows are pairs of answers, which need a preference loss: give --loss dpo, ipo, "
         "simpo or orpo (docs/guide/preferences.md)",
         printable(setup.data->train.path()));
}

// Refuses a micro batch that would contain each sample many times. Warns if it would repeat some
// samples.
void require_micro_batch(const JobSetup& setup, bool is_first) {
    constexpr int64_t kRepeatsMax = 8;
    const int64_t rows = setup.config().batch.micro_rows, samples = setup.data->train.rows();
    if (rows <= samples) return;
    const std::string text =
        fmt::format("{}: a micro batch of {} rows needs more rows than the file has ({})",
                    printable(setup.data->train.path()), rows, counted(samples, "sample"));
    if (rows > kRepeatsMax * samples)
        fail(ExitCode::kInput,
             "{}: give --micro-batch (train_micro_batch_size_per_gpu) {} or less, or "
             "--accumulation for larger steps",
             text, samples);
    if (is_first) log_warn("data", "{}: each micro batch repeats some rows", text);
}

// Opens the data and checks what can be checked before the model runs.
void open_and_check_data(JobSetup& setup, const JobArguments& arguments,
                         const runtime::Topology& place) {
    setup.data = arguments.fed_data ? arguments.fed_data(data_request(setup))
                                    : runtime::open_data(data_request(setup));
    // Only one rank of each host reads the whole files.
    if (place.local_rank != 0 && !arguments.fed_data) return;
    const auto folder = storage::model_folder_of(arguments.model_path);
    if (folder && has_pairs_without_loss(setup)) fail_pairs(setup);
    check_indices(setup, folder.has_value());
    if (!folder) return;  // in another model, the argument may mean something else
    setup.data->check_documents("documents");
    if (place.rank() != 0) return;
    setup.data->check_origin(*folder, setup.config().lora.init);
    warn_of_length(setup);
}

// Opens the data and resolves the config once more, since the config may depend on the samples.
void read_data(JobSetup& setup, const FoundConfig& found, const JobArguments& arguments,
               const runtime::Topology& place, const ContextChoice& context) {
    open_and_check_data(setup, arguments, place);
    resolve_config(setup, found, arguments, place, context);
    if (!arguments.plan_only && !arguments.fed_data) require_micro_batch(setup, place.rank() == 0);
}

void check_labels(const JobSetup& setup, int64_t classes) {
    if (classes > 0) setup.data->check_labels(data_request(setup), classes);
}

// Throws an error that names a bad label; the loss's own message is less clear. Runs the model with
// class 0 as every label, to learn the number of classes. Then looks for a label that is not below
// this number.
void blame_labels(const JobSetup& setup, std::vector<c10::IValue> batch) {
    batch.back() = at::zeros_like(batch.back().toTensor());
    int64_t classes = 0;
    try {
        classes =
            graph::measure(*setup.segmented,
                           graph::on_device(std::move(batch), setup.segmented->lowered().device))
                .loss_classes;
    } catch (const Error&) {
        return;  // the labels are not to blame
    }
    check_labels(setup, classes);
}

// Throws an error about the data if BATCH contains an index for which a table of the model has no
// row. All ranks then report the same error, whichever rank finds the index first.
void blame_indices(const JobSetup& setup, const std::vector<c10::IValue>& batch) {
    const std::vector<std::string>& arguments = setup.segmented->arguments();
    for (const graph::ArgumentLimit& limit :
         graph::argument_limits(setup.segmented->lowered(), *setup.model)) {
        const auto fed = std::ranges::find(arguments, limit.argument);
        const at::Tensor& indices = batch[fed - arguments.begin()].toTensor();
        if (indices.min().item<int64_t>() < 0 || indices.max().item<int64_t>() >= limit.rows)
            return check_indices(setup, false);
    }
}

// Returns advice if the model was exported for sizes other than BATCH's; empty otherwise.
std::string exported_sizes_text(const JobSetup& setup, const std::vector<c10::IValue>& batch) {
    const std::vector<std::string>& names = setup.segmented->arguments();
    for (size_t i = 0; i < std::min(names.size(), batch.size()); ++i) {
        const auto exported = setup.model->argument_sizes().find(names[i]);
        if (exported == setup.model->argument_sizes().end() || !batch[i].isTensor()) continue;
        const at::IntArrayRef sizes = batch[i].toTensor().sizes();
        const std::vector<int64_t>& known = exported->second;
        if (known.size() != sizes.size()) continue;
        for (size_t dim = 0; dim < known.size(); ++dim) {
            if (known[dim] == -1 || known[dim] == sizes[dim]) continue;
            return fmt::format(
                "; the program was exported for {} elements in dimension {} of `{}`, and the batch "
                "has {}: {}, or export it with dynamic_shapes (docs/guide/models.md)",
                known[dim], dim, printable(names[i]), sizes[dim],
                dim == 0 ? fmt::format("set train_micro_batch_size_per_gpu to {}", known[dim])
                         : std::string("use data of that size"));
        }
    }
    return "";
}

// Returns advice after a batch of samples of TOKENS tokens has failed; empty if the data are rows
// or TOKENS is 0.
std::string context_text(const JobSetup& setup, int64_t tokens) {
    const bool are_rows = setup.data && setup.data->train.tokens_per_sample() == 0;
    if (are_rows || tokens <= 0) return "";
    return fmt::format(
        " (samples of {} tokens; if the model has fewer positions, give a smaller --context)",
        tokens);
}

// Runs BATCH through the model and measures it for the plan.
plan::ModelInfo measure_batch(const JobSetup& setup, const std::vector<c10::IValue>& batch,
                              const runtime::Topology& place, graph::LossFacts* loss = nullptr) {
    const bool has_labels =
        setup.data && place.local_rank == 0 && setup.config().loss.takes_classes();
    plan::ModelInfo info;
    try {
        info = graph::measure(*setup.segmented, batch,
                              splits_backward(setup.config().pipeline.schedule), loss);
    } catch (const Error& error) {
        if (setup.data && setup.sharing.place.size == 1) blame_indices(setup, batch);
        if (has_labels) blame_labels(setup, batch);
        if (has_pairs_without_loss(setup)) fail_pairs(setup);
        const int64_t tokens = sample_tokens(setup);
        require_positions(setup, tokens);
        fail(error.code(), "{}: the first batch does not pass through the model{}: {}{}{}",
             setup.data ? printable(setup.data->train.path()) : "assumed tokens",
             context_text(setup, tokens), error.what(), exported_sizes_text(setup, batch),
             weights_type_text(setup));
    }
    if (has_labels) check_labels(setup, info.loss_classes);
    return info;
}

// Checks the labels before the layers are split among ranks, because this check needs all classes.
void check_whole(const JobSetup& setup, const std::vector<c10::IValue>& batch,
                 const runtime::Topology& place) {
    const bool has_labels = setup.data && setup.data->train.tokens_per_sample() == 0 &&
                            setup.config().loss.takes_classes();
    if (has_labels && place.local_rank == 0) static_cast<void>(measure_batch(setup, batch, place));
}

// Checks that the loss is a single number that depends on trained parameters.
void require_loss(const graph::LossFacts& loss) {
    if (loss.numel != 1)
        fail(ExitCode::kInput,
             "forward returns a tensor of {} elements, not a loss: return their mean, or return an "
             "output and choose a loss (--loss, dslaunch.loss)",
             loss.numel);
    if (!loss.trains)
        fail(ExitCode::kInput,
             "the loss depends on no trainable parameter, so nothing can be trained; between "
             "parameters and loss, look for an operation without gradient, such as detach(), "
             "argmax() or a comparison");
}

// Refuses a run in which no step can change the model, since it would look like training.
void require_trainable(const JobSetup& setup, const graph::LossFacts& loss) {
    const plan::ModelInfo& info = setup.model_info;
    if (info.parameters.empty())
        fail(ExitCode::kInput,
             "the model has no parameters, so nothing can be trained; torch.jit.freeze turns "
             "parameters into constants: save the module before it is frozen");
    for (const plan::SegmentInfo& segment : info.segments)
        for (const int parameter : segment.parameters)
            if (info.parameters[parameter].trainable) return require_loss(loss);
    fail(ExitCode::kInput,
         "forward reads no trainable parameter, so nothing can be trained; save the model with "
         "requires_grad set on the parameters to train");
}

void tell_begin(const JobArguments& arguments, std::string_view what) {
    if (arguments.begins) arguments.begins(what);
}

void load_model(JobSetup& setup, const JobArguments& arguments,
                const std::vector<int64_t>& layers = {}) {
    tell_begin(arguments, "reading the model");
    setup.trust = graph::trust_of(arguments.trust_model);
    setup.model = std::make_unique<graph::Model>(graph::Model::load(
        arguments.model_path,
        arguments.plan_only ? graph::Weights::kIfThere : graph::Weights::kRequired, setup.trust,
        layers));
    if (!setup.model->has_weights()) setup.shapes_only = std::make_unique<graph::ShapesOnly>();
}

// Applies ASSIGNMENT to CONFIG. The form is KEY=VALUE, or OPTION:KEY=VALUE for an assignment that
// stands for an option such as --steps.
void apply_assignment(config::TrainConfig& config, const std::string& assignment) {
    const size_t colon = assignment.starts_with("--") ? assignment.find(':') : std::string::npos;
    if (colon == std::string::npos) return config::apply_override(config, assignment);
    config::apply_override(config, assignment.substr(colon + 1), assignment.substr(0, colon));
}

// Refuses to train all weights of a folder that stores them rounded: the trained weights could not
// be written back in this form.
void require_exact_weights(const JobSetup& setup, const std::string& path) {
    if (!storage::model_folder_of(path) || setup.config().lora.on()) return;
    const storage::ModelFolder folder = storage::open_model_folder(path);
    if (!folder.config.quantization) return;
    fail(ExitCode::kInput,
         "{}: the weights are quantized ({}), so not all of them can be trained: train an adapter "
         "(--lora r=16), use a folder with the weights as they were before quantization, or "
         "convert the quantized weights to an archive with `dslaunch model import {} -o train.pt`",
         printable(folder.config_path), method_name(folder.config.quantization->method),
         shell_word(path));
}

// Does what layer_reduction says: the model gets layers of its teacher, or keeps only some of its
// own.
void reduce_layers(JobSetup& setup, const JobArguments& arguments) {
    const config::CompressionConfig& compression = setup.config().compression;
    if (!setup.kept_layers().empty()) {
        graph::require_layers_named(arguments.model_path, compression.reduction.prefix);
        graph::require_modules(*setup.model, compression.reduction.others);
        load_model(setup, arguments, setup.kept_layers());
    } else if (compression.reduction.enabled && setup.model->has_weights()) {
        graph::take_teacher_layers(*setup.model, compression.reduction,
                                   compression.distill.teacher);
    }
}

// Finds and resolves the config, and loads the model, since the config may depend on the model's
// types.
FoundConfig begin_setup(JobSetup& setup, const JobArguments& arguments,
                        const runtime::Topology& place) {
    FoundConfig found = find_config(arguments);
    setup.config_origin = found.origin;
    for (const std::string& assignment : arguments.overrides)
        apply_assignment(found.config, assignment);
    load_libraries(found, arguments);
    load_model(setup, arguments);
    config::take_begun(found.config, arguments.begun,
                       storage::model_folder_of(arguments.model_path).has_value());
    resolve_config(setup, found, arguments, place);
    require_exact_weights(setup, arguments.model_path);
    reduce_layers(setup, arguments);
    return found;
}

// Measures a pass over BATCH or, if the plan of a large batch needs an estimate, replaces BATCH by
// the shorter one that was run.
void measure_step(JobSetup& setup, const JobArguments& arguments, const runtime::Topology& place,
                  std::vector<c10::IValue>& batch) {
    graph::LossFacts loss;
    const auto measure = [&](const std::vector<c10::IValue>& values) {
        return measure_batch(setup, graph::on_device(values, setup.segmented->lowered().device),
                             place, &loss);
    };
    if (!arguments.plan_only || setup.sharing.place.size > 1) {
        setup.model_info = measure(batch);
        if (!arguments.plan_only) require_trainable(setup, loss);
        return;
    }
    PlanMeasurement measured = measure_for_plan(setup, batch, measure);
    setup.model_info = std::move(measured.info);
    setup.estimate = std::move(measured.estimate);
    batch = std::move(measured.batch);
}

}  // namespace

config::RunConfig config_of_job(const JobArguments& arguments, const runtime::Topology& place) {
    JobSetup setup;
    begin_setup(setup, arguments, place);
    return setup.config();
}

JobSetup set_up_job(const JobArguments& arguments, const runtime::Topology& place) {
    JobSetup setup;
    const FoundConfig found = begin_setup(setup, arguments, place);
    if (arguments.plan_meshes && setup.config().zero.shard_ranks > 0)
        fail(ExitCode::kUsage,
             "the config shards over the ranks of one host (zero_optimization.mics_shard_size), "
             "but a search over meshes needs sharding over all ranks that train the same "
             "parameters: add --set zero_optimization.mics_shard_size=-1");

    const c10::Device device =
        arguments.open_device ? arguments.open_device(setup.config()) : c10::Device(c10::kCPU);
    setup.on_gpu = !device.is_cpu() ||
                   (arguments.plan_only && setup.config().device == config::DeviceChoice::kCuda);

    tell_begin(arguments, "cutting the model into segments");
    // Parameters stay in the archive's mapping, from which ZeRO copies each rank's part, so no
    // device has to hold the whole model.
    graph::move_state_to_device(*setup.model, device);
    setup.segmented = std::make_unique<graph::SegmentedModel>(graph::SegmentedModel::make(
        *setup.model, lower_options(setup.config(), device), arguments.segments));
    // Lowering has turned the parameters that forward writes into buffers. Moves them too.
    graph::move_state_to_device(*setup.model, device);
    check_types(setup);
    const config::RunConfig& config = setup.config();
    const ContextChoice context = choose_context(setup, arguments.plan_only);
    if (context.value > 0) resolve_config(setup, found, arguments, place, context);
    // A plan needs only shapes, not samples. If no data are named, tokens of the context's length
    // are enough.
    const bool assume_tokens =
        arguments.plan_only && config.data.train_path.empty() && config.data.context > 0;
    if (arguments.plan_only && config.data.train_path.empty() && !assume_tokens)
        fail(ExitCode::kUsage,
             "the number of tokens per sample is not known: a plan needs --context N, or a file of "
             "training data (--data)");
    if (assume_tokens && config.loss.is_preference())
        fail(ExitCode::kUsage,
             "a plan with a preference loss needs a file of pairs (--data), such as `dslaunch data "
             "prepare` writes");
    tell_begin(arguments, "reading the data");
    if (!assume_tokens) read_data(setup, found, arguments, place, context);
    if (assume_tokens && place.rank() == 0) warn_of_length(setup);
    if (arguments.plan_only && context.value > 0 && place.rank() == 0)
        log_info("plan", "{} tokens per sample: {} (--context)", context.value, context.why);
    std::vector<c10::IValue> batch = trial_batch(setup);
    check_pipeline(setup);
    check_sharing(setup);
    setup.place = place_in_stages(config, place);
    setup.sharing.place = place_in_group(config, place, setup.place);
    check_writes_in_place(setup);
    const WithoutGroup alone(setup.sharing.place);
    if (setup.sharing.place.size > 1) {
        check_whole(setup, batch, place);
        share_job(setup, arguments, batch, place.rank() == 0);
    }
    tell_begin(arguments, "measuring time and memory of a step");
    measure_step(setup, arguments, place, batch);
    tell_begin(arguments, "planning a step");
    mark_exact_gradients(config.zero.wire, *setup.model, setup.model_info);
    setup.update_rules = parameter_rules(config, *setup.model);
    lay_out_job(setup, place);
    check_writes(setup);
    if (setup.place.is_pipeline()) check_shared_buffers(setup, batch);
    let_go_of_other_stages(setup);
    if (const std::string why = why_no_plan(setup); !why.empty())
        fail(ExitCode::kConfig, "{}", why);
    setup.plan = make_plan(setup, setup.place.of_stage);
    return setup;
}

}  // namespace dslaunch::job
