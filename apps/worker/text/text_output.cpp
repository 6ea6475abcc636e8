#include "worker/text/text_output.h"

#include <cerrno>
#include <cstdio>
#include <map>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/json.h"
#include "decoder/codec/written_text.h"
#include "decoder/engine/engine.h"

namespace dslaunch::worker {

namespace {

// Throws Error{kDisk}: a text that nobody got is not worth the next one.
void print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.length(), stdout) == text.length() &&
        std::fflush(stdout) == 0)
        return;
    fail(ExitCode::kDisk, "the text cannot be written to stdout: {}", errno_text(errno));
}

decoder::Request request_of(const Prompt& prompt, const WritingOptions& options,
                            const TextFiles& files) {
    decoder::Request request{
        prompt.tokens, tokens_max_of(options, std::ssize(prompt.tokens)), options.sampling, {}};
    if (!options.ignores_end) request.end_tokens = files.end_tokens();
    return request;
}

// The text of one prompt as its tokens come.
class Writing {
  public:
    Writing(const TextFiles& files, const WritingOptions& options, const Prompt& prompt) {
        if (!options.as_text) return;
        const std::span<const int32_t> before(prompt.tokens);
        written_.emplace(
            files.require_codec().stream(before.first(prompt.is_chat ? 0 : before.size())),
            options.stops);
    }

    // What is to be printed of MADE: the text that is certain now, or its number.
    std::string push(const decoder::MadeToken& made) {
        if (has_ended_) return {};
        ids_.push_back(made.token);
        const std::string text = written_ ? written_->push(made) : std::to_string(made.token) + " ";
        if (written_) text_ += text;
        const bool meets_stop = written_ && written_->is_stopped();
        has_ended_ = made.end != decoder::EndReason::kNone || meets_stop;
        is_stopped_ = made.end == decoder::EndReason::kEndToken || meets_stop;
        return text;
    }

    [[nodiscard]] bool has_ended() const { return has_ended_; }
    void write_json(JsonWriter& json) const {
        json.field("made_tokens", std::ssize(ids_));
        if (written_) json.field("text", text_);
        json.key("ids").begin_array();
        for (const int32_t id : ids_) json.value(id);
        json.end_array().field("end", is_stopped_ ? "stop" : "length");
    }

  private:
    std::optional<decoder::WrittenText> written_;  // empty: numbers are wanted
    std::vector<int32_t> ids_;
    std::string text_;
    bool has_ended_ = false;
    bool is_stopped_ = false;
};

// Lines of JSON in the order of the prompts, whichever ends first.
class OrderedLines {
  public:
    explicit OrderedLines(const std::vector<Prompt>& prompts)
        : prompts_(prompts), lines_(prompts.size()) {}

    void fault(size_t index, const std::string& fault) {
        JsonWriter json;
        json.begin_object().field("index", index).field("error", fault).end_object();
        add(index, json.text());
    }
    void end(size_t index, const Writing& writing) {
        JsonWriter json;
        json.begin_object().field("index", index);
        json.field("prompt_tokens", std::ssize(prompts_[index].tokens));
        writing.write_json(json);
        json.end_object();
        add(index, json.text());
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
};

}  // namespace

int64_t tokens_max_of(const WritingOptions& options, int64_t prompt_tokens) {
    if (!options.length_max) return options.tokens_max;
    if (*options.length_max <= prompt_tokens)
        fail(ExitCode::kInput,
             "the prompt has {} tokens, and generation_config.json's max_length is {}: give "
             "--tokens",
             prompt_tokens, *options.length_max);
    return *options.length_max - prompt_tokens;
}

void write_one(decoder::StepRunner& runner, const TextFiles& files, const WritingOptions& options,
               const Prompt& prompt) {
    Writing writing(files, options, prompt);
    decoder::Engine engine(runner, {1, 1});
    // A prompt that is refused is not printed first.
    if (options.tokens_max > 0) static_cast<void>(engine.add(request_of(prompt, options, files)));
    if (options.as_text) print(prompt.shown);
    decoder::EndReason end = decoder::EndReason::kNone;
    while (!engine.idle() && !writing.has_ended() && end != decoder::EndReason::kBroken)
        for (const decoder::MadeToken& made : engine.step()) {
            end = made.end;
            if (end != decoder::EndReason::kBroken) print(writing.push(made));
        }
    print("\n");
    if (end == decoder::EndReason::kBroken) fail(ExitCode::kInput, "{}", decoder::kBrokenLogits);
    if (end == decoder::EndReason::kContext)
        log_warn("generate", "the text stops here: the model sees {} tokens at most{}",
                 runner.positions_max(),
                 runner.positions_max() < runner.context() ? ", for which there is memory" : "");
}

void write_all(decoder::StepRunner& runner, const TextFiles& files, const WritingOptions& options,
               const std::vector<Prompt>& prompts) {
    decoder::Engine engine(runner, {options.sequences_max, 1});
    OrderedLines lines(prompts);
    struct Open {
        size_t index = 0;
        Writing writing;
    };
    std::map<decoder::RequestId, Open> open;
    size_t next = 0;
    while (next < prompts.size() || !engine.idle()) {
        for (; next < prompts.size() && engine.has_room(); ++next) {
            Writing writing(files, options, prompts[next]);
            if (!prompts[next].fault.empty()) {
                lines.fault(next, prompts[next].fault);
            } else if (options.tokens_max == 0) {
                lines.end(next, writing);
            } else {
                try {
                    const decoder::RequestId id =
                        engine.add(request_of(prompts[next], options, files));
                    open.emplace(id, Open{next, std::move(writing)});
                } catch (const Error& error) {
                    lines.fault(next, error.what());
                }
            }
        }
        if (engine.idle()) continue;
        for (const decoder::MadeToken& made : engine.step()) {
            Open& text = open.at(made.request);
            if (made.end == decoder::EndReason::kBroken) {
                lines.fault(text.index, decoder::kBrokenLogits);
                open.erase(made.request);
                continue;
            }
            static_cast<void>(text.writing.push(made));
            if (made.end == decoder::EndReason::kNone && !text.writing.has_ended()) continue;
            lines.end(text.index, text.writing);
            engine.cancel(made.request);
            open.erase(made.request);
        }
    }
}

}  // namespace dslaunch::worker
