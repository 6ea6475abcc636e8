// dsworker compress: writes a model in fewer bits, and reports the errors and scores that result.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/json.h"
#include "decoder/decode/batch.h"
#include "decoder/score/text_scores.h"
#include "launch/machine/machine_topology.h"
#include "runtime/watch/process_usage.h"
#include "storage/disk/output_place.h"
#include "storage/huggingface/named_place.h"
#include "worker/compress/compress_parts.h"
#include "worker/roles.h"
#include "worker/text/decoder_session.h"
#include "worker/text/held_out.h"

namespace dslaunch::worker {
namespace {

constexpr const char* kSpeaker = "compress";

struct Form {
    const char* name;
    CompressTo* write;
    bool is_gguf;
};

constexpr Form kForms[] = {
    {"int8", compress_to_folder, false}, {"int4", compress_to_folder, false},
    {"int3", compress_to_folder, false}, {"int2", compress_to_folder, false},
    {"fp8", compress_to_folder, false},  {"w8a8", compress_to_folder, false},
    {"q8_0", compress_to_gguf, true},    {"q4_0", compress_to_gguf, true},
    {"q4_k_m", compress_to_gguf, true},  {"q3_k_s", compress_to_gguf, true},
    {"q2_k", compress_to_gguf, true},    {"f16", compress_to_gguf, true},
    {"bf16", compress_to_gguf, true},    {"f32", compress_to_gguf, true},
};

// The score of a model on the held-out text.
struct ModelScore {
    double loss = 0;  // nats per target
    double perplexity = 0;
    double tokens_per_second = 0;
};

// The facts that the command reports.
struct Report {
    CompressedModel model;
    std::optional<ModelScore> before, after;
    double seconds = 0;             // time for compression
    int64_t peak_memory_bytes = 0;  // peak of this process, including the first scoring
};

std::vector<std::string> form_names() {
    std::vector<std::string> names;
    for (const Form& form : kForms) names.emplace_back(form.name);
    return names;
}

const Form& form_of(const std::string& name) {
    return *std::ranges::find_if(kForms, [&](const Form& form) { return name == form.name; });
}

void declare(CommandLine& app, CompressArguments& arguments) {
    app.add("FOLDER", arguments.model, "a Hugging Face folder").required();
    app.add("--to FORM", arguments.to, "form of the weights").required().one_of(form_names());
    app.add("-o,--output OUT", arguments.out,
            "folder to write, or for GGUF's forms a file NAME.gguf")
        .required();
    app.add("--calibrate FILE", arguments.calibrate,
            "rows from `dslaunch data prepare`: errors are compensated so that the layers' outputs "
            "on these rows change least (GPTQ); in GGUF's forms, errors are weighed by the layers' "
            "inputs");
    app.add("--calibration-rows N", arguments.calibration_rows,
            "use only the first N rows of --calibrate")
        .show_default()
        .at_least(1)
        .needs("--calibrate");
    app.add("--method METHOD", arguments.method,
            "how numbers are rounded: `nearest`; `gptq`, the default with --calibrate; or "
            "`autoround`, which then changes the rounding of all weights of a layer by the signs "
            "of gradients")
        .one_of({"nearest", "gptq", "autoround"});
    app.add("--iterations N", arguments.iterations, "steps of `autoround` for each layer")
        .show_default()
        .at_least(1)
        .needs("--method");
    app.add("--group N", arguments.group,
            "number of weights in a row that share a scale; 0: the whole row; default: depends on "
            "the form")
        .at_least(0);
    app.add("--minimum", arguments.has_minimum,
            "store a minimum as well as a scale for each group; default for int4, int3 and int2");
    app.add("--symmetric", arguments.is_symmetric,
            "store only a scale for each group; default for int8")
        .excludes("--minimum");
    app.add("--eval-data FILE", arguments.eval_data,
            "held-out text, as `dslaunch eval --data` reads it: loss and perplexity before and "
            "after");
    app.add("--samples N", arguments.samples, "use only the first N samples of --eval-data")
        .at_least(1)
        .needs("--eval-data");
    app.add("--context N", arguments.context,
            "tokens per sample, if --eval-data is a file of tokens; 0: the model's own limit")
        .show_default()
        .at_least(0);
    app.add("--threads N", arguments.threads, "number of threads; 0: one for each processor")
        .show_default()
        .range(int64_t{0}, int64_t{4096});
    app.add("--json", arguments.json, "print the result as JSON");
    app.add("--force", arguments.force, storage::kForceHelp);
}

HeldOutFile held_out_of(const CompressArguments& arguments) {
    return {arguments.eval_data, arguments.model, "uint16", arguments.samples};
}

ModelScore score_model(const std::string& model, const CompressArguments& arguments,
                       RankProcess& process) {
    DecoderArguments decoder;
    decoder.model = model;
    decoder.threads = arguments.threads;
    decoder.context = arguments.context;
    DecoderSession session(decoder, process);
    const HeldOut data(held_out_of(arguments), kSpeaker, session.context(),
                       session.folder().config.vocabulary);
    if (data.pairs() != nullptr)
        fail(ExitCode::kInput,
             "--eval-data {}: contains pairs of answers, but the loss is measured on texts; give a "
             "file of texts",
             printable(arguments.eval_data));
    session.open(decoder::pages_for(data.length()));
    decoder::TextScorer scorer(session.runner());
    const auto begin = std::chrono::steady_clock::now();
    const decoder::TextScore sum = score_held_out(data, scorer, kSpeaker);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    session.finish();
    const auto targets = static_cast<double>(sum.targets);
    return {sum.loss / targets, std::exp(sum.loss / targets), targets / seconds.count()};
}

double in_percent(double after, double before) {
    return 100 * (after / before - 1);
}

// Returns the weight with the largest error, or null if there is none. If MODEL has errors of
// layers' outputs, compares these errors. Otherwise compares the errors of the weights themselves.
const WeightLoss* worst_of(const CompressedModel& model) {
    const WeightLoss* worst = nullptr;
    for (const WeightLoss& loss : model.losses)
        if (loss.is_of_outputs == model.is_of_outputs &&
            (worst == nullptr || loss.error > worst->error))
            worst = &loss;
    return worst;
}

// Writes an object with the key NAME that has one error for each weight. If IS_OF_OUTPUTS is true,
// they are errors of the layers' outputs, otherwise errors of the weights themselves.
void write_errors(JsonWriter& json, const char* name, const CompressedModel& model,
                  bool is_of_outputs) {
    json.key(name).begin_object();
    for (const WeightLoss& loss : model.losses)
        if (loss.is_of_outputs == is_of_outputs) json.field(loss.name, loss.error);
    json.end_object();
}

double bits_a_weight(const CompressedModel& model) {
    return 8.0 * static_cast<double>(model.weight_bytes_after) / static_cast<double>(model.weights);
}

std::string table_of(const CompressArguments& arguments, const Report& report) {
    const CompressedModel& model = report.model;
    std::string text = fmt::format("{:<22} {:>12} {:>12} {:>10}\n", "", "before", "after", "");
    const auto bytes = [&](const char* name, int64_t before, int64_t after) {
        text += fmt::format("{:<22} {:>12} {:>12} {:>8.2f} x\n", name, to_text(Bytes{before}),
                            to_text(Bytes{after}),
                            static_cast<double>(before) / static_cast<double>(after));
    };
    bytes("weights of layers", model.weight_bytes_before, model.weight_bytes_after);
    bytes("all weights", model.bytes_before, model.bytes_after);
    if (report.before && report.after) {
        const auto row = [&](const char* name, double before, double after, int digits) {
            text += fmt::format("{:<22} {:>12.{}f} {:>12.{}f} {:>+8.2f} %\n", name, before, digits,
                                after, digits, in_percent(after, before));
        };
        row("held-out loss", report.before->loss, report.after->loss, 4);
        row("perplexity", report.before->perplexity, report.after->perplexity, 3);
        row("tokens a second", report.before->tokens_per_second, report.after->tokens_per_second,
            0);
    }
    text += fmt::format(
        "{} in {}: {:.2f} bits a weight, {:.0f} s; the command took at most {} of memory\n",
        arguments.out, arguments.to, bits_a_weight(model), report.seconds,
        to_text(Bytes{report.peak_memory_bytes}));
    if (const WeightLoss* const worst = worst_of(model))
        text += fmt::format("largest error of {}: {:.2f} % in {}\n",
                            model.is_of_outputs ? "outputs" : "weights", 100 * worst->error,
                            worst->name);
    return text;
}

void write_score(JsonWriter& json, const char* name, const std::optional<ModelScore>& score) {
    if (!score) return;
    json.key(name).begin_object();
    json.field("loss", score->loss).field("perplexity", score->perplexity);
    json.field("tokens_per_second", score->tokens_per_second).end_object();
}

std::string json_of(const CompressArguments& arguments, const Report& report) {
    const CompressedModel& model = report.model;
    JsonWriter json;
    json.begin_object().field("model", arguments.model).field("form", arguments.to);
    json.field("out", arguments.out).field("weights", model.weights);
    json.field("bits_per_weight", bits_a_weight(model));
    json.field("weight_bytes_before", model.weight_bytes_before);
    json.field("weight_bytes_after", model.weight_bytes_after);
    json.field("bytes_before", model.bytes_before).field("bytes_after", model.bytes_after);
    json.field("seconds", report.seconds).field("peak_memory_bytes", report.peak_memory_bytes);
    write_score(json, "before", report.before);
    write_score(json, "after", report.after);
    if (report.before && report.after)
        json.field("perplexity_percent",
                   in_percent(report.after->perplexity, report.before->perplexity));
    json.field("error_of", model.is_of_outputs ? "outputs" : "weights");
    if (const WeightLoss* const worst = worst_of(model))
        json.field("worst", worst->name).field("worst_error", worst->error);
    write_errors(json, "errors", model, model.is_of_outputs);
    // If too few calibration tokens reach a weight, it is rounded to nearest, and only the error of
    // the weight itself is known.
    if (model.is_of_outputs) write_errors(json, "errors_of_weights_to_nearest", model, false);
    return json.end_object().text() + "\n";
}

void require_place(const CompressArguments& arguments, const Form& form) {
    const bool names_gguf = arguments.out.ends_with(".gguf");
    if (names_gguf != form.is_gguf)
        fail(ExitCode::kUsage, "-o {}: the form {} is {}", printable(arguments.out), form.name,
             form.is_gguf ? "a file: write a name that ends with .gguf"
                          : "a folder, but the name ends with .gguf");
}

void run_compress(CompressArguments& arguments, RankProcess& process) {
    const Form& form = form_of(arguments.to);
    require_place(arguments, form);
    (form.is_gguf ? require_gguf_form : require_folder_form)(arguments);
    if (!arguments.eval_data.empty()) require_held_out(held_out_of(arguments), "--eval-data");
    Report report;
    if (!arguments.eval_data.empty())
        report.before = score_model(arguments.model, arguments, process);
    {
        const int threads = arguments.threads > 0 ? static_cast<int>(arguments.threads)
                                                  : launch::processors_granted();
        kernels::ThreadTeam team(threads, kernels::ThreadTeam::kTokenSpin);
        const auto begin = std::chrono::steady_clock::now();
        report.model = form.write(arguments, team);
        report.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        report.peak_memory_bytes = runtime::process_usage().peak_rss_bytes;
    }
    if (!arguments.eval_data.empty()) report.after = score_model(arguments.out, arguments, process);
    fmt::print("{}", arguments.json ? json_of(arguments, report) : table_of(arguments, report));
}

}  // namespace

int compress_main(int argc, char** argv) {
    CommandLine app(
        {.does = "Writes a model with weights of fewer bits, and says how large it is and what it "
                 "lost.",
         .examples = {"dslaunch compress SmolLM2 --to int8 -o SmolLM2-int8",
                      "dslaunch compress SmolLM2 --to int4 --calibrate rows.safetensors -o small",
                      "dslaunch compress SmolLM2 --to q4_k_m -o SmolLM2-Q4_K_M.gguf"},
         .docs = "docs/guide/compress.md"},
        "dslaunch compress");
    CompressArguments arguments;
    declare(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;
    arguments.model = storage::folder_model_at(arguments.model, "compress");
    return run_as_rank([&](RankProcess& process) { run_compress(arguments, process); });
}

}  // namespace dslaunch::worker
