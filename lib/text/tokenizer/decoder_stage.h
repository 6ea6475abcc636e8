// The `decoder` of a tokenizer.json, which converts the texts of tokens to one text. It is a chain
// of stages through which tokens are pushed one by one, so that text comes out as soon as it can no
// longer change. Built once, then only read; text in progress is in a DecoderRun, which one thread
// uses.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_place.h"

namespace dslaunch::text {

// The state of one stage between pushes.
struct StageState {
    std::string held;           // text that may still change
    std::string bytes;          // bytes that are not yet characters
    size_t tokens_done = 0;     // whole tokens that have been processed
    size_t characters_cut = 0;  // cut at the beginning of the token
    bool is_inside = false;     // a part of a token has been processed
};

// The receiver of a stage's text.
class StageOutput {
  public:
    virtual ~StageOutput() = default;
    // Receives TEXT, the next part of the stage's text. ENDS is true if a token ends with TEXT.
    virtual void push(std::string_view text, bool ends) = 0;
};

// One step of a decoder.
class DecoderStage {
  public:
    virtual ~DecoderStage() = default;
    // Processes TEXT, the next part of a token. A token comes in one or more parts, and each part
    // has whole characters. ENDS is true for the last part.
    virtual void push(StageState& state, std::string_view text, bool ends,
                      StageOutput& out) const = 0;
    // Processes the end of the tokens.
    virtual void finish(StageState& /*state*/, StageOutput& /*out*/) const {}
};

using DecoderStages = std::vector<std::unique_ptr<const DecoderStage>>;

// Reads the decoder. Throws Error{kInput} that names the place of a wrong or unknown part.
[[nodiscard]] DecoderStages read_decoder(const JsonPlace& place);
// Returns the decoder for a file that has no `decoder`. It writes a blank between tokens.
[[nodiscard]] DecoderStages blank_decoder();

// The decoding of one sequence of tokens.
class DecoderRun {
  public:
    // STAGES must outlive the run.
    explicit DecoderRun(const DecoderStages& stages) : stages_(&stages), states_(stages.size()) {}
    // Appends to OUT the text that can no longer change once TOKEN is known. Throws Error{kInput}
    // if the text grows too long.
    void push(std::string_view token, std::string& out);
    // Appends the rest of the text, and throws like push(). REQUIRES: called once, at the end.
    void finish(std::string& out);

  private:
    class Next;
    void send(size_t stage, std::string_view text, bool ends, std::string& out);

    const DecoderStages* stages_;
    std::vector<StageState> states_;
    size_t taken_ = 0;  // bytes of the tokens
    size_t sent_ = 0;   // bytes that stages have passed on
};

}  // namespace dslaunch::text
