#include "job/run/describe_run.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "base/text.h"
#include "base/text/json.h"
#include "graph/draws/dropout_seeds.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/models/text_model.h"
#include "graph/writes/hoisted_writes.h"
#include "graph/writes/written_values.h"
#include "job/setup/job_exchange.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_tensor.h"
#include "job/setup/job_wire.h"
#include "job/setup/parameter_rules.h"
#include "kernels/flat_optimizer.h"
#include "storage/adapter/adapter_names.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::job {

namespace {

std::string model_text(const JobSetup& setup, const std::string& path) {
    const int64_t all = setup.info.parameter_numel();
    const int64_t trained = setup.info.trainable_numel();
    return fmt::format("{}: {} parameters, {} trained, in {}; {} per step", path, all,
                       trained == all ? "all" : std::to_string(trained),
                       counted(std::ssize(setup.model_info.segments), "segment"),
                       counted(std::ssize(setup.plan.instructions), "instruction"));
}

// Returns the number as a text, such as "134.5 M" or "37888".
std::string numel_text(int64_t numel) {
    constexpr double kMillion = 1e6;
    const auto value = static_cast<double>(numel);
    if (value >= 1e3 * kMillion) return fmt::format("{:.4g} B", value / (1e3 * kMillion));
    return value >= 0.1 * kMillion ? fmt::format("{:.4g} M", value / kMillion)
                                   : std::to_string(numel);
}

std::string brief_model_text(const JobSetup& setup, const std::string& path) {
    const int64_t all = setup.info.parameter_numel();
    const int64_t trained = setup.info.trainable_numel();
    return fmt::format("{}: {} parameters{}", path, numel_text(all),
                       trained == all ? "" : fmt::format(", {} trained", numel_text(trained)));
}

std::string text_part_text(const std::string& path) {
    if (!storage::model_folder_of(path)) return "";
    const storage::TransformerConfig config = storage::open_model_folder(path).config;
    if (config.outer.empty()) return "";
    return fmt::format("{}: the weights of the image part are left out",
                       storage::architecture_text(config));
}

std::string data_text(const JobSetup& setup) {
    const runtime::DataSource& train = setup.data->train;
    const config::BatchConfig& batch = setup.config().batch;
    const double passes = static_cast<double>(setup.config().steps * batch.train_rows) /
                          static_cast<double>(train.rows());
    std::string text = fmt::format("{}: {}", train.path(), counted(train.rows(), "sample"));
    if (train.tokens_read() > 0)
        text += fmt::format(" of {}", counted(train.tokens_read(), "token"));
    const std::string shown = fmt::format("{:.3g} pass", passes);
    return text +
           fmt::format(
               "; a step takes {} = {} x {} x {}; {} {} {}{}", batch.train_rows,
               counted(batch.micro_rows, "row"), counted(batch.accumulation_steps, "micro step"),
               counted(batch.data_parallel_size, "rank"), counted(setup.config().steps, "step"),
               setup.config().steps == 1 ? "is" : "are", shown, shown == "1 pass" ? "" : "es");
}

std::string value_text(const config::Resolved& resolved, const std::string& path) {
    for (const config::ResolvedValue& entry : resolved.values)
        if (entry.path == path) return entry.value.text;
    return {};
}

std::string method_text(const JobSetup& setup) {
    const config::RunConfig& config = setup.config();
    const double clipping = config.gradient_clipping;
    bool is_given = false;
    for (const config::ResolvedValue& entry : setup.resolved.values)
        is_given =
            is_given || (entry.path == "gradient_clipping" && !entry.origin.starts_with("derived"));
    return fmt::format("{}, ZeRO stage {}, {} with lr {:.3g}, {}",
                       value_text(setup.resolved, "data_types.param_dtype"), config.zero.stage,
                       value_text(setup.resolved, "optimizer.type"), config.optimizer.lr,
                       clipping > 0 ? fmt::format("gradients clipped at norm {:.3g}", clipping)
                       : is_given   ? "gradients not clipped"
                                    : "gradients not clipped (gradient_clipping is not given; "
                                      "DeepSpeed would clip at 1.0)");
}

// Returns "; LoRA r=16, alpha=32, targets=*.q_proj; base weights nf4"; empty without adapters.
std::string adapters_text(const config::LoraConfig& lora) {
    if (!lora.on()) return "";
    const char* const base = lora.base == config::LoraBase::kInt8   ? "int8"
                             : lora.base == config::LoraBase::kInt4 ? "int4"
                             : lora.base == config::LoraBase::kNf4  ? "nf4"
                                                                    : "";
    return fmt::format("; LoRA r={}, alpha={:.4g}, {}{}{}", lora.r, lora.alpha,
                       lora.targets.empty() ? "all linear layers but the last"
                                            : "targets=" + printable(join(lora.targets, ",")),
                       lora.modules_to_save.empty()
                           ? ""
                           : ", modules_to_save=" + printable(join(lora.modules_to_save, ",")),
                       *base == '\0' ? "" : fmt::format("; base weights {}", base));
}

// Returns a warning about adapters whose rank is larger than the smaller dimension of their layer;
// empty if there are no such adapters.
std::string wide_adapters_text(const JobSetup& setup) {
    int64_t layers = 0;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const graph::ModelParameter& parameter : setup.model->parameters()) {
        const bool is_a = parameter.name.ends_with(storage::kAdapterA);
        if (!is_a && !parameter.name.ends_with(storage::kAdapterB)) continue;
        const int64_t side = parameter.tensor.size(is_a ? 1 : 0);
        least = std::min(least, side);
        if (side < setup.config().lora.r) ++layers;
    }
    if (layers == 0) return "";
    return fmt::format(
        "the adapters' r={} is larger than a dimension of {} (the smallest of these dimensions is "
        "{}): there, an adapter uses more memory than the layer's own weight, without any benefit; "
        "use a smaller r",
        setup.config().lora.r, counted(layers, "layer"), least);
}

// Returns a text about the parts that stay in evaluation mode, or about an archive that was saved
// in evaluation mode and is now trained. Empty if nothing depends on the mode.
std::string modes_text(const JobSetup& setup) {
    if (!setup.segmented->lowered().reads_mode) return "";
    if (setup.model->was_saved_in_evaluation())
        return "the model was saved in evaluation mode and is trained in training mode as a whole, "
               "so dropout and batch normalization are on; to keep a part in evaluation mode, save "
               "it in eval() inside a module in train()";
    const std::vector<std::string>& kept = setup.model->kept_in_evaluation();
    if (kept.empty()) return "";
    constexpr size_t kShown = 3;
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min(kept.size(), kShown); ++i)
        names.push_back(kept[i].empty() ? "the outermost module" : printable(kept[i]));
    return fmt::format(
        "{}{} {} in evaluation mode, as saved", join(names, ", "),
        kept.size() > kShown ? fmt::format(" and {} more", kept.size() - kShown) : "",
        kept.size() == 1 ? "stays" : "stay");
}

// Returns a warning if the run computes in bf16 and the processor has no instructions for it;
// otherwise an empty text.
std::string slow_bf16_text(const JobSetup& setup) {
    const kernels::Isa isa = kernels::isa_in_use();
    const bool has_none =
        isa == kernels::Isa::kScalar || isa == kernels::Isa::kAvx2 || isa == kernels::Isa::kAvx512;
    if (setup.on_gpu || !has_none || setup.config().precision.compute != DType::kBF16) return "";
    return fmt::format(
        "bf16 is slow on this processor ({}), which has no instructions for bf16: matrix products "
        "take {} times as long as in fp32; {} selects fp32",
        kernels::isa_name(isa), isa == kernels::Isa::kAvx512 ? "some 4" : "up to 60",
        config::other_value_text(setup.resolved, "bf16.enabled", "false"));
}

std::string ranks_text(const RunFacts& facts, const launch::WorkerEnvironment& environment) {
    std::string text = fmt::format("{} x {}", counted(environment.world_size, "rank"),
                                   counted(facts.threads, "thread"));
    if (!facts.memory_brief.empty()) text += ", " + facts.memory_brief;
    return text;
}

// Logs TEXT if it is not empty.
void tell(const char* component, const std::string& text) {
    if (!text.empty()) log_info(component, "{}", text);
}

// Logs the first notes for the user, and how many more there are. The other notes are logged as
// details.
void tell_notes(const std::vector<std::string>& notes) {
    constexpr std::ptrdiff_t kShown = 3;
    const std::ptrdiff_t shown = std::ssize(notes) > kShown ? kShown - 1 : std::ssize(notes);
    for (std::ptrdiff_t i = 0; i < std::ssize(notes); ++i) {
        if (i < shown) {
            log_info("config", "{}", notes[i]);
        } else {
            log_detail("config", "{}", notes[i]);
        }
    }
    if (shown < std::ssize(notes))
        log_info("config", "{}: --log-level debug",
                 counted(std::ssize(notes) - shown, "more note"));
}

// Returns the form in which `generate` expects its prompts, "text" or "ids", for an archive that is
// trained on a file of tokens. Returns "" if the archive does not compute logits of tokens. The
// form is "text" if the vocabulary has at least the 128 ASCII tokens and at most BYTES_MAX tokens.
std::string prompts_of(const JobSetup& setup, int64_t bytes_max) {
    const torch::jit::Module& module = setup.whole_model().module();
    const bool returns_loss =
        setup.config().loss.kind == config::LossKind::kModel && !module.find_method("logits");
    if (setup.data->train.tokens_per_sample() == 0 || returns_loss ||
        !graph::has_logits_method(module))
        return "";
    int64_t vocabulary = setup.info.loss_classes;
    for (const graph::ArgumentLimit& limit :
         graph::argument_limits(setup.segmented->lowered(), *setup.model))
        vocabulary = limit.rows;
    constexpr int64_t kAscii = 128;
    return vocabulary >= kAscii && vocabulary <= bytes_max ? "text" : "ids";
}

std::string output_text(const JobSetup& setup, const std::string& output) {
    const int64_t interval = setup.config().save.interval;
    return fmt::format("{}: weights, metrics, logs, a checkpoint {}", output,
                       interval == 0
                           ? "at the end"
                           : fmt::format("every {} and at the end", counted(interval, "step")));
}

}  // namespace

void describe_run(const JobSetup& setup, const RunFacts& facts,
                  const launch::WorkerEnvironment& environment, runtime::Reporter& reporter) {
    log_info("model", "{}", brief_model_text(setup, facts.model));
    log_detail("model", "{}", model_text(setup, facts.model));
    tell("model", text_part_text(facts.model));
    if (!facts.memory.empty()) log_detail("memory", "{}", facts.memory);
    log_info("data", "{}", data_text(setup));
    if (const std::string target = setup.data->train.target_choice(); !target.empty())
        log_detail("data",
                   "column {} is the target of the loss, because dslaunch.loss.target is not set "
                   "and no other unused column can be the target",
                   target);
    const std::string method = method_text(setup);
    log_info("run", "{}; {}{}", ranks_text(facts, environment), method.substr(0, method.find(" (")),
             adapters_text(setup.config().lora));
    log_detail("training", "{}", method);
    tell("training", describe_rules(setup.update_rules, *setup.model));
    tell("training", exchange_line(setup));
    tell("training", lag_line(setup));
    if (!facts.output.empty()) log_info("output", "{}", output_text(setup, facts.output));
    if (setup.config_origin.ends_with(":ds_config.json"))
        log_info("config", "{}, which is packed in the model", setup.config_origin);
    const std::string differences = config::differences_text(setup.resolved);
    log_detail("config", "{}{}", setup.config_origin,
               differences.empty() ? ", with all values at their defaults"
                                   : " and options say " + differences);
    for (const std::string& text : setup.resolved.warnings) log_warn("config", "{}", text);
    if (const std::string slow = slow_bf16_text(setup); !slow.empty()) log_warn("run", "{}", slow);
    if (!setup.resolved.chosen.empty()) log_info("config", "{}", setup.resolved.chosen);
    tell_notes(setup.resolved.notes);
    log_debug("config", "from {}\n{}", setup.config_origin, config::resolved_table(setup.resolved));
    if (const std::string why = shard_text(setup); !why.empty())
        log_info("train", "dslaunch.shard auto: {}", why);
    tell("links", wire_text(setup));
    if (setup.place.is_pipeline()) log_info("train", "{}", stages_text(setup));
    if (setup.sharing.plan) log_info("train", "{}", sharing_text(setup));
    if (const std::string wide = wide_adapters_text(setup); !wide.empty())
        log_warn("train", "{}", wide);
    for (const int unused : setup.segmented->unused_parameters())
        log_warn("train", "forward never reads parameter {}, so it is not trained",
                 setup.model->parameters()[unused].name);
    if (const std::string& choice = setup.segmented->lowered().output_choice; !choice.empty())
        log_info("model", "the model's {} is {}",
                 setup.config().loss.kind == config::LossKind::kModel ? "loss" : "output", choice);
    if (!setup.segmented->lowered().opaque_node.empty())
        log_warn("train",
                 "{} takes a whole module as an argument, so everything that this call runs stays "
                 "in one segment",
                 setup.segmented->lowered().opaque_node);
    tell("model", modes_text(setup));
    for (const graph::ModelBuffer& buffer : setup.model->buffers())
        if (buffer.origin == graph::ModelBuffer::Origin::kConstant)
            log_warn("model",
                     "forward changes a tensor of {} elements that is not a buffer: no checkpoint "
                     "and no export contains it, so a resumed run begins with the archive's "
                     "values; register it with register_buffer",
                     buffer.tensor.numel());
    JsonWriter json;
    json.begin_object().field("version", DSL_VERSION).field("config_origin", setup.config_origin);
    json.key("config").raw(config::resolved_json(setup.resolved));
    json.field("world_size", environment.world_size)
        .field("parameters", setup.info.parameter_numel())
        .field("optimizer_kernels", kernels::isa_name(kernels::isa_in_use()));
    json.field("segments", setup.model_info.segments.size())
        .field("plan_hash", fmt::format("{:016x}", setup.plan.hash()));
    json.field("prompts", prompts_of(setup, facts.byte_vocabulary_max));
    json.end_object();
    reporter.run_info(json.text());
}

std::string own_buffers_text(const JobSetup& setup) {
    const graph::LoweredGraph& lowered = setup.segmented->lowered();
    const auto moved = graph::find_inputs_written_and_read(*lowered.graph);
    std::vector<std::string> names;
    std::vector<size_t> inputs;
    for (size_t i = 0; i < lowered.buffers.size(); ++i) {
        const size_t input = lowered.first_buffer() + i;
        if (moved.count(lowered.graph->inputs()[input]) == 0) continue;
        names.push_back(setup.model->buffers()[lowered.buffers[i]].name);
        inputs.push_back(input);
    }
    // Buffers whose new values depend only on weights, not on the batch, are the same on all ranks.
    if (!inputs.empty() && !graph::moves_by_batch(lowered, inputs, graph::draws)) names.clear();
    std::string text =
        "each rank has its own buffers (running averages) during training; evaluations and saves "
        "use the buffers of rank 0";
    if (names.empty()) return text;
    const size_t others = names.size() - 1;
    return text +
           fmt::format(
               ". The model computes with {}{}, which each rank updates from its own data: set "
               "dslaunch.average_buffers to true to give all ranks the mean after each step, or "
               "dslaunch.broadcast_buffers to true to give them rank 0's values before each step",
               names.front(), others == 0 ? "" : fmt::format(" and {} others", others));
}

}  // namespace dslaunch::job
