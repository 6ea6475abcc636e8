#include "text/tokenizer/decoder_stage.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "text/subword/byte_alphabet.h"
#include "text/subword/growth.h"
#include "text/tokenizer/step_fields.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {

class DecoderRun::Next : public StageOutput {
  public:
    Next(DecoderRun& run, size_t stage, std::string& out) : run_(run), stage_(stage), out_(out) {}
    void push(std::string_view text, bool ends) override { run_.send(stage_, text, ends, out_); }

  private:
    DecoderRun& run_;
    size_t stage_;
    std::string& out_;
};

void DecoderRun::push(std::string_view token, std::string& out) {
    taken_ += token.size();
    send(0, token, true, out);
}

void DecoderRun::send(size_t stage, std::string_view text, bool ends, std::string& out) {
    sent_ += text.size();
    require_room(sent_ / (stages_->size() + 1), grown_max(taken_));
    if (stage == stages_->size()) {
        out += text;
        return;
    }
    Next next(*this, stage + 1, out);
    (*stages_)[stage]->push(states_[stage], text, ends, next);
}

void DecoderRun::finish(std::string& out) {
    for (size_t stage = 0; stage < stages_->size(); ++stage) {
        Next next(*this, stage + 1, out);
        (*stages_)[stage]->finish(states_[stage], next);
    }
}

namespace {

// A stage that needs whole tokens.
class TokenStage : public DecoderStage {
  public:
    void push(StageState& state, std::string_view text, bool ends,
              StageOutput& out) const override {
        if (!ends || !state.held.empty()) {
            state.held += text;
            if (!ends) return;
            const std::string token = std::exchange(state.held, {});
            take(state, token, out);
        } else {
            take(state, text, out);
        }
        ++state.tokens_done;
    }

  protected:
    virtual void take(StageState& state, std::string_view token, StageOutput& out) const = 0;
};

// Joins all tokens to one text. Their characters stand for bytes, which are converted back.
class ByteLevelStage : public TokenStage {
  public:
    void finish(StageState& state, StageOutput& out) const override {
        out.push(replace_invalid_utf8(state.bytes), true);
        state.bytes.clear();
    }

  private:
    void take(StageState& state, std::string_view token, StageOutput& out) const override {
        const std::optional<std::string> bytes = bytes_of_characters(token);
        state.bytes += bytes ? std::string_view(*bytes) : token;
        const size_t whole = whole_characters(state.bytes);
        if (whole == 0) return;
        out.push(replace_invalid_utf8(std::string_view(state.bytes).substr(0, whole)), false);
        state.bytes.erase(0, whole);
    }
};

std::optional<unsigned char> byte_of_token(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    int value = 0;
    for (const char c : token.substr(3, 2)) {
        const char small = static_cast<char>(c | 0x20);
        const bool is_letter = small >= 'a' && small <= 'f';
        if (!is_digit(c) && !is_letter) return std::nullopt;
        value = value * 16 + (is_letter ? small - 'a' + 10 : c - '0');
    }
    return static_cast<unsigned char>(value);
}

// Joins neighbouring tokens like <0xE2> to one text if their bytes are valid UTF-8; otherwise each
// of these tokens becomes U+FFFD.
class ByteFallbackStage : public TokenStage {
  public:
    void finish(StageState& state, StageOutput& out) const override { end_bytes(state, out); }

  private:
    void take(StageState& state, std::string_view token, StageOutput& out) const override {
        if (const auto byte = byte_of_token(token)) {
            state.bytes += static_cast<char>(*byte);
            return;
        }
        end_bytes(state, out);
        out.push(token, true);
    }

    static void end_bytes(StageState& state, StageOutput& out) {
        const std::string bytes = std::exchange(state.bytes, {});
        if (bytes.empty()) return;
        if (valid_utf8_prefix(bytes) == bytes.size()) return out.push(bytes, true);
        for (size_t i = 0; i < bytes.size(); ++i) out.push("\uFFFD", true);
    }
};

class FuseStage : public DecoderStage {
  public:
    void push(StageState&, std::string_view text, bool, StageOutput& out) const override {
        out.push(text, false);
    }
    void finish(StageState&, StageOutput& out) const override { out.push("", true); }
};

class MetaspaceStage : public DecoderStage {
  public:
    MetaspaceStage(std::string replacement, bool prepends)
        : replacement_(std::move(replacement)), prepends_(prepends) {}

    void push(StageState& state, std::string_view text, bool ends,
              StageOutput& out) const override {
        std::string token;
        const bool drops = prepends_ && state.tokens_done == 0;
        for (size_t at = 0; at < text.size();) {
            const size_t found = std::min(text.find(replacement_, at), text.size());
            token += text.substr(at, found - at);
            if (found < text.size() && !drops) token += ' ';
            at = found + replacement_.size();
        }
        if (ends) ++state.tokens_done;
        out.push(token, ends);
    }

  private:
    std::string replacement_;
    bool prepends_;
};

class ReplaceStage : public TokenStage {
  public:
    ReplaceStage(std::unique_ptr<const Pattern> pattern, std::string content, bool is_one)
        : pattern_(std::move(pattern)), content_(std::move(content)), is_one_(is_one) {}

    void push(StageState& state, std::string_view text, bool ends,
              StageOutput& out) const override {
        if (!is_one_) return TokenStage::push(state, text, ends, out);
        out.push(replaced(text), ends);  // a match of one character is within one part
    }

  private:
    void take(StageState&, std::string_view token, StageOutput& out) const override {
        out.push(replaced(token), true);
    }

    [[nodiscard]] std::string replaced(std::string_view text) const {
        std::vector<Match> matches;
        pattern_->find_all(text, matches);
        std::string result;
        size_t last = 0;
        for (const Match& match : matches) {
            result += text.substr(last, match.begin - last);
            result += content_;
            require_room(result.size(), grown_max(text.size()));
            last = match.end;
        }
        result += text.substr(last);
        return result;
    }

    std::unique_ptr<const Pattern> pattern_;
    std::string content_;
    bool is_one_;  // the pattern is one character
};

struct StripCounts {
    size_t start = 0;
    size_t stop = 0;
};

// Removes CONTENT from the beginning and the end of each token, up to the given number of times.
class StripStage : public DecoderStage {
  public:
    StripStage(std::string content, StripCounts counts)
        : content_(std::move(content)), counts_(counts) {}

    void push(StageState& state, std::string_view text, bool ends,
              StageOutput& out) const override {
        while (!state.is_inside && !text.empty()) {
            const bool cuts = state.characters_cut < counts_.start && text.starts_with(content_);
            state.is_inside = !cuts;
            if (!cuts) break;
            text.remove_prefix(content_.size());
            ++state.characters_cut;
        }
        state.held += text;
        size_t kept = state.held.size();
        for (size_t i = 0; i < counts_.stop; ++i) {
            if (!std::string_view(state.held).substr(0, kept).ends_with(content_)) break;
            kept -= content_.size();
        }
        const std::string sure = state.held.substr(0, kept);
        state.held.erase(0, kept);
        if (ends) state = StageState{};
        if (ends || !sure.empty()) out.push(sure, ends);
    }

  private:
    std::string content_;
    StripCounts counts_;
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
    if (from.empty()) return;
    size_t at = text.find(from);
    if (at == std::string::npos) return;
    std::string out;
    size_t last = 0;
    for (; at != std::string::npos; at = text.find(from, last)) {
        out.append(text, last, at - last);
        out += to;
        last = at + from.size();
    }
    text = out + text.substr(last);
}

class WordPieceStage : public TokenStage {
  public:
    WordPieceStage(std::string prefix, bool cleans) : prefix_(std::move(prefix)), cleans_(cleans) {}

  private:
    void take(StageState& state, std::string_view token, StageOutput& out) const override {
        std::string text;
        if (state.tokens_done == 0) {
            text = token;
        } else if (token.starts_with(prefix_)) {
            text = token.substr(prefix_.size());
        } else {
            text = ' ';
            text += token;
        }
        if (cleans_) clean(text);
        out.push(text, true);
    }

    static void clean(std::string& text) {
        constexpr std::pair<std::string_view, std::string_view> kRules[] = {
            {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
            {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
            {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
        for (const auto& [from, to] : kRules) replace_all(text, from, to);
    }

    std::string prefix_;
    bool cleans_;
};

// Replaces the suffix that marks the end of a word by a blank. At the end of the last token of the
// sequence, removes the suffix instead.
class SuffixStage : public TokenStage {
  public:
    explicit SuffixStage(std::string suffix) : suffix_(std::move(suffix)) {}
    void finish(StageState& state, StageOutput& out) const override {
        if (state.tokens_done > 0) release(state, "", out);
    }

  private:
    void take(StageState& state, std::string_view token, StageOutput& out) const override {
        if (state.tokens_done > 0) release(state, " ", out);
        state.bytes = token;
    }

    void release(StageState& state, std::string_view blank, StageOutput& out) const {
        std::string token = std::exchange(state.bytes, {});
        replace_all(token, suffix_, blank);
        out.push(token, true);
    }

    std::string suffix_;
};

class BlankStage : public DecoderStage {
  public:
    void push(StageState& state, std::string_view text, bool ends,
              StageOutput& out) const override {
        const bool is_first_part = !std::exchange(state.is_inside, !ends);
        if (is_first_part && state.tokens_done > 0) out.push(" ", false);
        if (ends) ++state.tokens_done;
        out.push(text, ends);
    }
};

size_t read_count(const JsonPlace& place) {
    const int64_t count = place.integer();
    if (count < 0 || count > 1 << 10) place.refuse("expected a count from 0 to 1024");
    return static_cast<size_t>(count);
}

std::unique_ptr<const DecoderStage> read_replace_stage(const JsonPlace& place) {
    expect_step_fields(place, {"type", "pattern", "content"});
    const auto [kind, value] = place.at("pattern").only();
    const bool is_one = kind == "String" && !value.text().empty() &&
                        point_bytes(value.text()[0]) == value.text().size();
    return std::make_unique<ReplaceStage>(read_pattern(place.at("pattern")),
                                          short_text(place.at("content")), is_one);
}

std::unique_ptr<const DecoderStage> read_metaspace_stage(const JsonPlace& place) {
    expect_step_fields(place, {"type", "replacement", "prepend_scheme", "split", "str_rep"});
    bool prepends = !place.has("prepend_scheme") || place.at("prepend_scheme").text() != "never";
    if (place.has("add_prefix_space") && !place.at("add_prefix_space").boolean()) prepends = false;
    return std::make_unique<MetaspaceStage>(read_character(place.at("replacement")), prepends);
}

std::unique_ptr<const DecoderStage> read_stage(const JsonPlace& place, const std::string& type) {
    if (type == "ByteLevel") {
        expect_step_fields(place, {"type"});
        return std::make_unique<ByteLevelStage>();
    }
    if (type == "ByteFallback") {
        expect_step_fields(place, {"type"});
        return std::make_unique<ByteFallbackStage>();
    }
    if (type == "Fuse") {
        expect_step_fields(place, {"type"});
        return std::make_unique<FuseStage>();
    }
    if (type == "Metaspace") return read_metaspace_stage(place);
    if (type == "Replace") return read_replace_stage(place);
    if (type == "Strip") {
        expect_step_fields(place, {"type", "content", "start", "stop"});
        return std::make_unique<StripStage>(
            read_character(place.at("content")),
            StripCounts{read_count(place.at("start")), read_count(place.at("stop"))});
    }
    if (type == "WordPiece") {
        expect_step_fields(place, {"type", "prefix", "cleanup"});
        return std::make_unique<WordPieceStage>(place.at("prefix").text(),
                                                place.at("cleanup").boolean());
    }
    if (type == "BPEDecoder") {
        expect_step_fields(place, {"type", "suffix"});
        return std::make_unique<SuffixStage>(place.at("suffix").text());
    }
    place.refuse(fmt::format("the decoder `{}` is not known to this version", printable(type)));
}

}  // namespace

DecoderStages read_decoder(const JsonPlace& place) {
    DecoderStages stages;
    for_steps(place, "decoders", [&](const JsonPlace& stage, const std::string& type) {
        stages.push_back(read_stage(stage, type));
    });
    return stages;
}

DecoderStages blank_decoder() {
    DecoderStages stages;
    stages.push_back(std::make_unique<BlankStage>());
    return stages;
}

}  // namespace dslaunch::text
