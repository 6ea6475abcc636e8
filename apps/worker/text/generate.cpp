// dsworker generate: writes text from a trained language model to stdout while it is generated.
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/words.h"
#include "decoder/codec/written_text.h"
#include "decoder/engine/engine.h"
#include "decoder/sample/sampler.h"
#include "graph/adapter/merged_model.h"
#include "graph/archive/model.h"
#include "graph/archive/op_library.h"
#include "graph/lower/device_rewrite.h"
#include "graph/models/text_model.h"
#include "job/process/process_resources.h"
#include "runtime/comm/device_backend.h"
#include "runtime/compute/rank_device.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "text/unicode/code_points.h"
#include "worker/rank_process.h"
#include "worker/roles.h"
#include "worker/text/decoder_session.h"
#include "worker/text/generation_defaults.h"
#include "worker/text/prompts.h"
#include "worker/text/text_files.h"

namespace dslaunch::worker {
namespace {

struct WritingOptions {
    int64_t tokens_max = 200;
    std::optional<int64_t> length_max;  // replaces tokens_max: tokens of prompt and text
    decoder::SamplingOptions sampling;
    std::vector<std::string> stops;
    bool ignores_end = false;
    bool as_text = true;
    int64_t sequences_max = 16;  // prompts that share a batch
};

struct GenerateArguments {
    DecoderArguments decoder;  // its `model` may also be an archive
    PromptArguments prompt;
    WritingOptions writing;
    SamplingArguments sampling;
    std::optional<int64_t> tokens;
    std::string device = "cpu", as = "auto";
    std::vector<std::string> op_libraries;
    bool trust_model = false;
    bool names_prompt = false;  // true: an option gives the prompt; false: stdin does
};

void declare(CommandLine& app, GenerateArguments& arguments) {
    app.add(
           "MODEL", arguments.decoder.model,
           "an archive with logits(tokens) or forward(tokens) -> logits, a Hugging Face folder, or "
           "a GGUF file")
        .required();
    app.add("--prompt TEXT", arguments.prompt.text,
            "text to continue; empty: the model begins by itself. Without --prompt, --prompt-ids, "
            "--chat and --file, the text is read from stdin");
    app.add("--prompt-ids LIST", arguments.prompt.ids, "token ids to continue, e.g. 5,17,2");
    app.add("--chat TEXT", arguments.prompt.chat,
            "a user's message to the model, in its chat template; or a JSON list of messages");
    app.add("--system TEXT", arguments.prompt.system, "with --chat: the system message");
    app.add("--chat-template-kwargs JSON", arguments.prompt.template_kwargs,
            "with --chat or --file: variables of the chat template, e.g. '{\"enable_thinking\": "
            "false}'");
    app.add("--file FILE", arguments.prompt.file,
            "file with a prompt on each line: {\"prompt\": text}, {\"prompt_ids\": [5, 17]} or "
            "{\"messages\": [...]}; prints a line of JSON for each");
    app.add("--batch N", arguments.writing.sequences_max,
            "with --file: number of prompts that are continued at the same time")
        .show_default()
        .at_least(1);
    app.add("--tokens N", arguments.tokens,
            "maximum number of tokens to generate; default: generation_config.json's, else 200")
        .range(int64_t{0}, kPositionsMax);
    declare_sampling(app, arguments.sampling);
    app.add("--seed N", arguments.writing.sampling.seed, "seed of the random draws")
        .show_default()
        .at_least(0);
    app.add("--stop TEXT", arguments.writing.stops,
            "end the text where TEXT would begin; repeatable");
    app.add("--ignore-eos", arguments.writing.ignores_end, "continue after tokens that end a text");
    app.add("--context N", arguments.decoder.context,
            "number of tokens that the model sees; 0: its own limit")
        .show_default()
        .at_least(0);
    app.add("--device NAME", arguments.device, "cpu, or cuda for the first visible GPU")
        .show_default()
        .one_of({"cpu", "cuda"});
    declare_decoder(app, arguments.decoder);
    app.add("--op-library FILE", arguments.op_libraries, kOpLibraryHelp);
    app.add("--trust-model", arguments.trust_model, kTrustModelHelp);
    app.add("--as NAME", arguments.as,
            "print text, ids (of tokens), or auto: text if the model's tokens can be decoded, else "
            "ids")
        .show_default()
        .one_of({"auto", "text", "ids"});
}

// Opens and returns the GPU if NAME asks for it. This also loads LibTorch's CUDA library.
runtime::DeviceBackendPtr open_device(const std::string& name) {
    if (name == "cpu") return {};
    return runtime::open_device_backend(runtime::own_device_plugin(), 0);
}

// Warns if TEXT contains a backslash and an n that may be meant as a newline, or if TEXT is not
// UTF-8. TEXT is the value of OPTION.
void warn_of_text(const char* option, const std::string& text) {
    if (const size_t end = text::valid_utf8_prefix(text); end < text.size())
        log_warn("generate", "{}: byte {} is not valid UTF-8", option, end + 1);
    if (text.find("\\n") != std::string::npos && text.find('\n') == std::string::npos)
        log_warn("generate",
                 "{}: \\n is read as a backslash and an n, not as a newline; in the shell, write a "
                 "newline as {} $'\\n'",
                 option, option);
}

std::vector<Prompt> prompts_of(const GenerateArguments& arguments, const TextFiles& files) {
    PromptArguments given = arguments.prompt;
    if (!arguments.names_prompt) {
        // A model without a tokenizer cannot use text from a terminal or a pipe.
        static_cast<void>(files.require_codec());
        given.text = text_of_stdin();
    }
    warn_of_text("--prompt", arguments.prompt.text);
    for (const std::string& stop : arguments.writing.stops) warn_of_text("--stop", stop);
    if (given.file.empty()) return {prompt_of(given, files)};
    if (!given.text.empty() || given.ids || !given.chat.empty())
        fail(ExitCode::kUsage,
             "--file cannot be used together with --prompt, --prompt-ids or --chat");
    return prompts_of_file(given, files, arguments.decoder.model);
}

// Returns the options for writing texts. Values that ARGUMENTS lack come from the folder's
// generation_config.json.
WritingOptions writing_of(const GenerateArguments& arguments, const TextFiles& files) {
    const storage::GenerationConfig& config = files.generation();
    WritingOptions writing = arguments.writing;
    const uint64_t seed = writing.sampling.seed;
    writing.sampling = sampling_of(arguments.sampling, config);
    writing.sampling.seed = seed;
    const std::optional<int64_t> tokens =
        arguments.tokens ? arguments.tokens : config.max_new_tokens;
    writing.tokens_max = tokens.value_or(writing.tokens_max);
    if (!tokens) writing.length_max = config.max_length;
    if (writing.stops.empty()) writing.stops = config.stop_strings;
    tell_generation("generate", arguments.sampling, config);
    if (!files.end_source().empty() && !writing.ignores_end)
        log_info("generate", "a text ends at the token {}", files.end_source());
    return writing;
}

// Returns the number of cache pages for all prompts that run at the same time, if each of them uses
// as many positions as the longest prompt can need.
int64_t pages_of(const WritingOptions& writing, const std::vector<Prompt>& prompts,
                 int64_t context) {
    int64_t longest = 1;
    for (const Prompt& prompt : prompts) longest = std::max(longest, std::ssize(prompt.tokens));
    const int64_t wanted =
        writing.length_max ? std::max(*writing.length_max, longest) : longest + writing.tokens_max;
    return decoder::pages_for(std::min(wanted, context)) *
           std::clamp<int64_t>(std::ssize(prompts), 1, writing.sequences_max);
}

// Prints TEXT on stdout. Throws Error{kDisk} if this fails: generating more text would be useless.
void print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.length(), stdout) == text.length() &&
        std::fflush(stdout) == 0)
        return;
    fail(ExitCode::kDisk, "the text cannot be written to stdout: {}", errno_text(errno));
}

// Returns the number of tokens to generate after PROMPT_TOKENS. Throws Error{kInput} if length_max
// leaves none.
int64_t tokens_max_of(const WritingOptions& options, int64_t prompt_tokens) {
    if (!options.length_max) return options.tokens_max;
    if (*options.length_max <= prompt_tokens)
        fail(ExitCode::kInput,
             "the prompt has {} tokens, but max_length in generation_config.json is {}, which "
             "leaves none to generate: set --tokens",
             prompt_tokens, *options.length_max);
    return *options.length_max - prompt_tokens;
}

decoder::Request request_of(const Prompt& prompt, const WritingOptions& options,
                            const TextFiles& files) {
    decoder::Request request{
        prompt.tokens, tokens_max_of(options, std::ssize(prompt.tokens)), options.sampling, {}};
    if (!options.ignores_end) request.end_tokens = files.end_tokens();
    return request;
}

decoder::WrittenText written_of(const Prompt& prompt, const WritingOptions& options,
                                const TextFiles& files) {
    if (!options.as_text) return {nullptr, {}};
    const std::span<const int32_t> before(prompt.tokens);
    return {files.require_codec().stream(before.first(prompt.answers ? 0 : before.size())),
            options.stops};
}

// The answer to one prompt from a file.
struct Answer {
    size_t index = 0;  // the prompt's index
    decoder::WrittenText written;
    std::vector<int32_t> ids = {};
    std::string text = {};
};

// Prints lines of JSON in the order of the prompts, in whatever order the answers end.
class OrderedLines {
  public:
    explicit OrderedLines(const std::vector<Prompt>& prompts)
        : prompts_(prompts), lines_(prompts.size()) {}

    void fault(size_t index, const std::string& fault) {
        ++faults_;
        JsonWriter json;
        json.begin_object().field("index", index).field("error", fault).end_object();
        add(index, json.text());
    }
    void end(const Answer& answer, decoder::TextEnd end, bool as_text) {
        stopped_ += end == decoder::TextEnd::kStop ? 1 : 0;
        tokens_ += std::ssize(answer.ids);
        JsonWriter json;
        json.begin_object().field("index", answer.index);
        json.field("prompt_tokens", std::ssize(prompts_[answer.index].tokens));
        json.field("made_tokens", std::ssize(answer.ids));
        if (as_text) json.field("text", answer.text);
        json.key("ids").begin_array();
        for (const int32_t id : answer.ids) json.value(id);
        json.end_array().field("end", decoder::end_name(end)).end_object();
        add(answer.index, json.text());
    }
    // Returns one line about all texts, which took SECONDS.
    [[nodiscard]] std::string summary(double seconds) const {
        const int64_t texts = std::ssize(prompts_) - faults_;
        std::string text = counted(texts, "text");
        if (texts > 0)
            text += fmt::format(": {} ended by themselves, {} at the limit of length", stopped_,
                                texts - stopped_);
        if (faults_ > 0) text += fmt::format("; {} without a text", counted(faults_, "prompt"));
        return fmt::format("{}; {} in {:.2f} s ({:.1f} a second)", text, counted(tokens_, "token"),
                           seconds, static_cast<double>(tokens_) / std::max(seconds, 1e-3));
    }

  private:
    void add(size_t index, const std::string& line) {
        lines_[index] = line;
        std::string ready;
        for (; next_ < lines_.size() && !lines_[next_].empty(); ++next_)
            ready += std::exchange(lines_[next_], {}) + "\n";
        print(ready);
    }

    const std::vector<Prompt>& prompts_;
    std::vector<std::string> lines_;
    size_t next_ = 0;
    int64_t stopped_ = 0, faults_ = 0, tokens_ = 0;
};

// Continues PROMPT on stdout. Prints each piece as soon as it can no longer change.
void write_one(decoder::BatchRunner& runner, const TextFiles& files, const WritingOptions& options,
               const Prompt& prompt) {
    decoder::WrittenText written = written_of(prompt, options, files);
    decoder::Engine engine(runner, {1, 1});
    // The prompt is printed only after the engine has accepted it.
    if (options.tokens_max > 0) static_cast<void>(engine.add(request_of(prompt, options, files)));
    if (options.as_text) print(prompt.shown);
    decoder::TextEnd end = decoder::TextEnd::kNone;
    while (!engine.is_idle() && end == decoder::TextEnd::kNone)
        for (const decoder::MadeToken& made : engine.step()) {
            const decoder::TextPiece piece = written.push(made);
            end = piece.end;
            print(piece.text);
        }
    print("\n");
    if (end == decoder::TextEnd::kBroken) fail(ExitCode::kInput, "{}", decoder::kBrokenLogits);
    if (end == decoder::TextEnd::kContext)
        log_warn(
            "generate", "the text stops here: the model sees at most {} tokens{}",
            runner.positions_max(),
            runner.positions_max() < runner.context() ? ", because no more fit in memory" : "");
}

// Continues PROMPTS, several at the same time. Prints a line of JSON for each, in their order: its
// index, the numbers of tokens, the text, the tokens, and how it ended. For a faulty prompt, the
// line has the fault instead. Logs one line about all of them at the end.
void write_all(decoder::BatchRunner& runner, const TextFiles& files, const WritingOptions& options,
               const std::vector<Prompt>& prompts) {
    using decoder::TextEnd;
    decoder::Engine engine(runner, {options.sequences_max, 1});
    OrderedLines lines(prompts);
    const auto begin = std::chrono::steady_clock::now();
    std::map<decoder::RequestId, Answer> open;
    size_t next = 0;
    while (next < prompts.size() || !engine.is_idle()) {
        for (; next < prompts.size() && engine.has_room(); ++next) {
            const Prompt& prompt = prompts[next];
            Answer answer{next, written_of(prompt, options, files)};
            if (!prompt.fault.empty()) {
                lines.fault(next, prompt.fault);
            } else if (options.tokens_max == 0) {
                lines.end(answer, TextEnd::kLength, options.as_text);
            } else {
                try {
                    open.emplace(engine.add(request_of(prompt, options, files)), std::move(answer));
                } catch (const Error& error) {
                    lines.fault(next, error.what());
                }
            }
        }
        if (engine.is_idle()) continue;
        for (const decoder::MadeToken& made : engine.step()) {
            Answer& answer = open.at(made.request);
            const decoder::TextPiece piece = answer.written.push(made);
            answer.text += piece.text;
            if (piece.tokens > 0) answer.ids.push_back(made.token);
            if (piece.end == TextEnd::kNone) continue;
            if (piece.end == TextEnd::kBroken) {
                lines.fault(answer.index, decoder::kBrokenLogits);
            } else {
                lines.end(answer, piece.end, options.as_text);
            }
            engine.cancel(made.request);
            open.erase(made.request);
        }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    log_info("generate", "{}", lines.summary(took.count()));
}

// Generates with RUNNER the texts that ARGUMENTS and OPTIONS ask for.
void write(decoder::BatchRunner& runner, const GenerateArguments& arguments, WritingOptions options,
           const TextFiles& files, const std::vector<Prompt>& prompts) {
    options.as_text =
        arguments.as == "text" || (arguments.as == "auto" && files.codec() != nullptr);
    if (!options.as_text && arguments.writing.stops.empty()) options.stops.clear();
    if (!options.as_text && !options.stops.empty())
        fail(ExitCode::kUsage, "--stop is a text, but token ids are printed here: remove --stop{}",
             arguments.as == "ids" ? ", or remove --as ids" : "");
    if (arguments.prompt.file.empty()) {
        write_one(runner, files, options, prompts.front());
    } else {
        options.sequences_max = std::min(options.sequences_max, runner.rows_max());
        write_all(runner, files, options, prompts);
    }
}

// Generates with a Hugging Face folder, using a decoder with a cache of keys and values.
void generate_with_decoder(const GenerateArguments& arguments, RankProcess& process) {
    if (!arguments.op_libraries.empty())
        fail(ExitCode::kUsage,
             "--op-library is for archives only: the decoder of a Hugging Face folder uses no such "
             "libraries");
    if (arguments.trust_model)
        fail(ExitCode::kUsage,
             "--trust-model is for archives only: nothing in a Hugging Face folder is executed");
    DecoderArguments decoder = arguments.decoder;
    decoder.streams_text = true;
    DecoderSession session(decoder, process);
    if (process.is_first()) {
        const TextFiles files(session.text_folder(), session.folder().config.vocabulary);
        const std::vector<Prompt> prompts = prompts_of(arguments, files);
        const WritingOptions writing = writing_of(arguments, files);
        session.open(pages_of(writing, prompts, session.context()));
        write(session.runner(), arguments, writing, files, prompts);
    } else {
        session.open(0);
    }
    session.finish();
}

// Computes batches with a module of any kind. The runner's cache contains only the tokens of the
// texts, so each row computes its whole text again. One thread.
class ModuleRunner final : public decoder::BatchRunner {
  public:
    // MODEL must outlive this object. A text may have as many positions as fit in PAGES. If the
    // model's context is shorter, the model sees only the last positions.
    ModuleRunner(graph::TextModel& model, int64_t pages)
        : model_(model), tokens_(static_cast<size_t>(pages * decoder::kPagePositions)) {}

    [[nodiscard]] int64_t vocabulary() const override { return model_.vocab(); }
    [[nodiscard]] int64_t context() const override { return std::ssize(tokens_); }
    [[nodiscard]] int64_t pages() const override {
        return std::ssize(tokens_) / decoder::kPagePositions;
    }
    [[nodiscard]] int64_t rows_max() const override { return 4096; }
    [[nodiscard]] std::span<float> run(const decoder::Batch& batch) override;

  private:
    graph::TextModel& model_;
    std::vector<int32_t> tokens_;  // indexed by page and position
    std::vector<float> logits_;
};

std::span<float> ModuleRunner::run(const decoder::Batch& batch) {
    const auto place = [&](const decoder::BatchRow& row, int32_t position) -> int32_t& {
        const std::vector<int32_t>& pages = batch.sequences[row.sequence].pages;
        const int64_t page = pages[static_cast<size_t>(position / decoder::kPagePositions)];
        return tokens_[page * decoder::kPagePositions + position % decoder::kPagePositions];
    };
    logits_.clear();
    for (const decoder::BatchRow& row : batch.rows) {
        place(row, row.position) = row.token;
        if (!row.wants_logits) continue;
        std::vector<int64_t> text;
        for (int32_t position = 0; position <= row.position; ++position)
            text.push_back(place(row, position));
        const at::Tensor logits = model_.next_logits(text).contiguous();
        const float* numbers = logits.const_data_ptr<float>();
        logits_.insert(logits_.end(), numbers, numbers + logits.numel());
    }
    return logits_;
}

// Generates with a model that runs as a graph: computes the whole text again for each token.
void generate_with_module(const GenerateArguments& arguments) {
    const DecoderArguments defaults;
    const DecoderArguments& given = arguments.decoder;
    if (given.weights != defaults.weights || given.cache != defaults.cache ||
        given.tensor_ranks != defaults.tensor_ranks)
        fail(ExitCode::kUsage,
             "--weights, --cache-dtype and --tensor-ranks work only with a Hugging Face folder on "
             "CPUs: {} runs as a graph{}, which does not support them",
             printable(given.model), arguments.device == "cpu" ? "" : " on a GPU");
    job::set_rank_threads(1, static_cast<int>(given.threads));
    const runtime::DeviceBackendPtr gpu = open_device(arguments.device);
    const at::Device device = gpu ? runtime::torch_device(*gpu) : at::Device(at::kCPU);
    graph::load_op_libraries(arguments.op_libraries);
    const std::string& adapter = arguments.decoder.adapter;
    const graph::Trust trust = graph::trust_of(arguments.trust_model);
    if (const std::string other =
            adapter.empty() ? "" : storage::other_base_text(adapter, given.model);
        !other.empty())
        log_warn("adapter", "{}", other);
    if (adapter.empty())
        if (const std::string text = storage::unused_adapter_text(given.model); !text.empty())
            log_warn("adapter", "{}; to use it: --adapter {}", text, shell_word(given.model));
    graph::Model loaded = adapter.empty()
                              ? graph::Model::load(given.model, graph::Weights::kRequired, trust)
                              : graph::load_merged(given.model, adapter, trust).model;
    const torch::jit::Module& module = loaded.module();
    if (!device.is_cpu()) graph::rewrite_methods(module, device);
    graph::TextModel model(module, device, arguments.decoder.context);
    const TextFiles files(storage::model_folder_of(arguments.decoder.model).value_or(""),
                          model.vocab(), given.model);
    const std::vector<Prompt> prompts = prompts_of(arguments, files);
    if (files.codec() == nullptr && arguments.as == "auto")
        log_info("generate", "{}, so token ids are printed", files.without_codec());
    const WritingOptions writing = writing_of(arguments, files);
    ModuleRunner runner(model, pages_of(writing, prompts, INT32_MAX));
    write(runner, arguments, writing, files, prompts);
}

}  // namespace

int generate_main(int argc, char** argv) {
    CommandLine app(
        {.does =
             "Generates text with a language model: continues a prompt, answers a chat message, or "
             "continues the prompts in a file. Options that choose hosts and ranks (dslaunch run "
             "--help), such as --hostfile, come after MODEL; the ranks then share the model.",
         .examples = {"dslaunch generate run/model.pt --prompt \"In the beginning\" --tokens 400",
                      "dslaunch generate Qwen2.5-0.5B --chat \"What is the capital of France?\"",
                      "dslaunch generate Qwen2.5-0.5B --hostfile hostfile --file prompts.jsonl"},
         .docs = "docs/guide/generate.md"},
        "dslaunch generate");
    GenerateArguments arguments;
    declare(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;
    static_cast<void>(sampling_of(arguments.sampling, {}));  // throws if a value is out of range
    for (const char* option : {"--prompt", "--prompt-ids", "--chat", "--file"})
        arguments.names_prompt |= app.count(option) > 0;
    return run_with_decoder(arguments.decoder, "", [&](RankProcess& process) {
        const bool is_folder = storage::model_folder_of(arguments.decoder.model).has_value();
        if (is_folder && arguments.device == "cpu") {
            generate_with_decoder(arguments, process);
        } else if (process.environment.world_size == 1) {
            generate_with_module(arguments);
        } else {
            fail(
                ExitCode::kUsage,
                "{}: with several ranks, the model must be a Hugging Face folder and run on CPUs "
                "(without --device); for any other model, or to use a GPU, remove the options that "
                "choose hosts",
                printable(arguments.decoder.model));
        }
    });
}

}  // namespace dslaunch::worker
