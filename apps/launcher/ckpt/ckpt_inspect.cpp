// dslaunch ckpt inspect: the contents of one checkpoint.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "launcher/ckpt/ckpt_parts.h"
#include "storage/export/row_major.h"
#include "storage/export/source_of_path.h"
#include "storage/export/tensor_source.h"

namespace dslaunch::launcher {
namespace {

struct InspectArguments {
    std::string path;
    std::string glob = "*";
    bool stats = false;
    bool config = false;
    bool json = false;
};

// One line of output: a tensor's weights, or one of its optimizer states.
struct Line {
    const storage::CheckpointTensor* tensor = nullptr;
    std::string state;  // empty: the weights
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    std::optional<storage::TensorStats> stats;
};

std::vector<Line> lines_of(const storage::TensorSource& source, const InspectArguments& arguments) {
    std::vector<Line> lines;
    for (size_t i = 0; i < source.tensors().size(); ++i) {
        const storage::CheckpointTensor& tensor = source.tensors()[i];
        if (!matches_glob(arguments.glob, tensor)) continue;
        const auto add = [&](int state, const std::string& name) {
            Line line{&tensor, name, storage::dtype_of(tensor, state), tensor.shape, {}};
            if (!tensor.is_like_tensor(state)) line.shape = {tensor.numel_of(state)};
            if (arguments.stats) line.stats = storage::stats_of(source, static_cast<int>(i), state);
            lines.push_back(std::move(line));
        };
        add(storage::kWeights, "");
        if (source.checkpoint() == nullptr || !storage::has_states(tensor)) continue;
        const auto& states = source.checkpoint()->states;
        for (size_t s = 0; s < states.size(); ++s) add(static_cast<int>(s), states[s]);
    }
    if (lines.empty())
        fail(ExitCode::kUsage, "--tensor {}: no tensor in {} has a name that matches",
             printable(arguments.glob), source.path());
    return lines;
}

void print_head(const storage::Checkpoint& checkpoint) {
    const storage::TrainingState& training = checkpoint.training;
    fmt::print("step             {}\n", training.step);
    fmt::print("updates          {}\n", training.updates);
    fmt::print("samples seen     {}\n", training.samples_seen);
    fmt::print("loss             {}\n", training.loss);
    fmt::print("loss scale       {}\n", training.loss_scale);
    fmt::print("seed             {}\n", training.seed);
    if (const storage::EvalRecord& evals = training.evals; evals.metric)
        fmt::print("evaluation       {} {:.6g} after step {}; best {:.6g} after step {}\n",
                   eval_metric_name(*evals.metric), evals.value, evals.step, evals.best,
                   evals.best_step);
    fmt::print("created          {}\n", printable(checkpoint.created));
    fmt::print("written by       dslaunch {}, {} ranks, ZeRO stage {}\n",
               printable(checkpoint.version), checkpoint.world_size, checkpoint.zero_stage);
    std::string states;
    for (const std::string& state : checkpoint.states)
        states += fmt::format(" {}", printable(state));
    fmt::print("optimizer        {}{}\n",
               checkpoint.optimizer.empty() ? "none" : printable(checkpoint.optimizer),
               states.empty() ? " (only weights)" : fmt::format(":{}", states));
    fmt::print("finite           {}\n",
               checkpoint.is_finite() ? "yes" : "NO: contains a NaN or infinity");
    fmt::print("id               {}, format {}\n", printable(checkpoint.id), checkpoint.format);
}

void print_lines(const std::vector<Line>& lines, bool stats) {
    fmt::print("\n{:<12} {:<5} {:<20}", "kind", "dtype", "shape");
    if (stats)
        fmt::print(" {:>12} {:>12} {:>12} {:>12} {:>8}", "norm", "min", "max", "mean", "not fin.");
    fmt::print("  name\n");
    for (const Line& line : lines) {
        fmt::print(
            "{:<12} {:<5} {:<20}",
            line.state.empty() ? std::string(kind_name(line.tensor->kind)) : printable(line.state),
            dtype_name(line.dtype), shape_text(line.shape));
        if (line.stats)
            fmt::print(" {:>12.6g} {:>12.6g} {:>12.6g} {:>12.6g} {:>8}", line.stats->norm,
                       line.stats->min, line.stats->max, line.stats->mean,
                       line.stats->nan_count + line.stats->infinite_count);
        std::string names = printable(line.tensor->name);
        if (line.tensor->kind == storage::TensorKind::kRankBuffer)
            names += fmt::format(" (rank {})", line.tensor->rank);
        for (const std::string& alias : line.tensor->aliases)
            names += fmt::format(" = {}", printable(alias));
        for (const storage::CheckpointView& view : line.tensor->views)
            names += fmt::format(", its view {} {}", printable(view.name), shape_text(view.shape));
        fmt::print("  {}\n", names);
    }
}

void add_line(JsonWriter& json, const Line& line) {
    const storage::CheckpointTensor& tensor = *line.tensor;
    json.begin_object().field("name", tensor.name);
    json.key("state");
    line.state.empty() ? json.null() : json.value(line.state);
    json.field("kind", kind_name(tensor.kind)).field("dtype", dtype_name(line.dtype));
    json.key("shape").begin_array();
    for (const int64_t length : line.shape) json.value(length);
    json.end_array().key("aliases").begin_array();
    for (const std::string& alias : tensor.aliases) json.value(alias);
    json.end_array().key("views").begin_array();
    for (const storage::CheckpointView& view : tensor.views) json.value(view.name);
    json.end_array();
    json.field("row_major", storage::is_row_major(tensor)).field("updates", tensor.updates);
    if (tensor.kind == storage::TensorKind::kRankBuffer) json.field("rank", tensor.rank);
    if (line.stats) {
        json.field("norm", line.stats->norm).field("min", line.stats->min);
        json.field("max", line.stats->max).field("mean", line.stats->mean);
        json.field("nan", line.stats->nan_count).field("infinite", line.stats->infinite_count);
    }
    json.end_object();
}

void print_json(const storage::TensorSource& source, const std::vector<Line>& lines) {
    JsonWriter json;
    json.begin_object().field("path", source.path());
    if (const storage::Checkpoint* checkpoint = source.checkpoint(); checkpoint != nullptr) {
        const storage::TrainingState& training = checkpoint->training;
        json.field("id", checkpoint->id).field("version", checkpoint->version);
        json.field("created", checkpoint->created).field("finite", checkpoint->is_finite());
        json.field("world_size", checkpoint->world_size);
        json.field("zero_stage", checkpoint->zero_stage);
        json.field("optimizer", checkpoint->optimizer).key("states").begin_array();
        for (const std::string& state : checkpoint->states) json.value(state);
        json.end_array().key("training").begin_object();
        json.field("step", training.step).field("updates", training.updates);
        json.field("samples_seen", training.samples_seen).field("seed", training.seed);
        json.field("loss", training.loss).field("loss_scale", training.loss_scale);
        json.field("scale_steps", training.scale_steps);
        json.field("scale_good_steps", training.scale_good_steps);
        json.field("scale_hysteresis_left", training.scale_hysteresis_left);
        if (const storage::EvalRecord& evals = training.evals; evals.metric) {
            json.field("eval_metric", eval_metric_name(*evals.metric));
            json.field("eval_step", evals.step).field("eval_value", evals.value);
            json.field("best_step", evals.best_step).field("best", evals.best);
            json.field("evals_without_gain", evals.without_gain);
        }
        json.end_object().key("config");
        checkpoint->config_json.empty() ? json.null() : json.raw(checkpoint->config_json);
    }
    json.key("tensors").begin_array();
    for (const Line& line : lines) add_line(json, line);
    json.end_array().end_object();
    fmt::print("{}\n", json.text());
}

void inspect(const InspectArguments& arguments) {
    const std::unique_ptr<storage::FileTree> tree = storage::make_disk_tree();
    const auto source = storage::open_tensor_source(*tree, arguments.path);
    const storage::Checkpoint* checkpoint = source->checkpoint();
    if (arguments.config && !arguments.json) {
        if (checkpoint == nullptr || checkpoint->config_json.empty())
            fail(ExitCode::kInput, "{}: contains no config", source->path());
        fmt::print("{}\n", printable(checkpoint->config_json));
        return;
    }
    const std::vector<Line> lines = lines_of(*source, arguments);
    if (arguments.json) return print_json(*source, lines);
    int64_t numel = 0;
    for (const storage::CheckpointTensor& tensor : source->tensors()) numel += tensor.numel();
    fmt::print("{}: {} tensors, {} elements\n", printable(source->path()), source->tensors().size(),
               numel);
    if (checkpoint != nullptr) print_head(*checkpoint);
    print_lines(lines, arguments.stats);
}

}  // namespace

int ckpt_inspect(CommandLine& command, const Parse& parse) {
    InspectArguments arguments;
    command
        .add("PATH", arguments.path,
             "a step folder, a folder with checkpoints (the newest intact checkpoint is used), a "
             ".safetensors file or a Hugging Face folder")
        .required();
    command.add("--tensor GLOB", arguments.glob,
                "only tensors with this name or pattern, such as '*.bias'");
    command.add("--stats", arguments.stats,
                "also read the values and show norm, min, max, mean, and how many are not finite");
    command.add("--config", arguments.config, "print only the resolved config of the run");
    command.add("--json", arguments.json, "one JSON object");
    if (parse()) inspect(arguments);
    return 0;
}

}  // namespace dslaunch::launcher
