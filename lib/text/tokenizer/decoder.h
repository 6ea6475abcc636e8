// The `decoder` of a tokenizer.json, which makes text of the texts of tokens: a chain of stages
// through which tokens are pushed one by one, so that decided text comes out at once. Built once,
// then only read; text on its way is in a DecoderRun of one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json_place.h"

namespace dslaunch::text {

// The state of one stage from push to push.
struct StageState {
    std::string held;           // text that is not decided yet
    std::string bytes;          // bytes that are not yet characters
    size_t tokens_done = 0;     // whole tokens that went through
    size_t characters_cut = 0;  // at the beginning of the token
    bool is_inside = false;     // a part of a token went through
};

// The receiver of a stage's text. ENDS: a token ends with TEXT.
class StageOutput {
  public:
    virtual ~StageOutput() = default;
    virtual void push(std::string_view text, bool ends) = 0;
};

class DecoderStage {
  public:
    virtual ~DecoderStage() = default;
    // Takes a token in one or more parts of whole characters; the last part ENDS it.
    virtual void push(StageState& state, std::string_view text, bool ends,
                      StageOutput& out) const = 0;
    // Takes the end: no more tokens come.
    virtual void finish(StageState& /*state*/, StageOutput& /*out*/) const {}
};

using DecoderStages = std::vector<std::unique_ptr<const DecoderStage>>;

// Reads the decoder. Throws Error{kInput} that names the place of a wrong or unknown part.
[[nodiscard]] DecoderStages read_decoder(const JsonPlace& place);
// Returns the decoder of a file without one: tokens with blanks between them.
[[nodiscard]] DecoderStages blank_decoder();

class DecoderRun {
  public:
    // STAGES must outlive the run.
    explicit DecoderRun(const DecoderStages& stages) : stages_(&stages), states_(stages.size()) {}
    // Appends to OUT the text that one more token decides. Throws Error{kInput} as require_room
    // does.
    void push(std::string_view token, std::string& out);
    // Appends the rest, and throws like push(). REQUIRES: once, at the end.
    void finish(std::string& out);

  private:
    class Next;
    void send(size_t stage, std::string_view text, bool ends, std::string& out);

    const DecoderStages* stages_;
    std::vector<StageState> states_;
    size_t taken_ = 0;  // bytes of the tokens
    size_t sent_ = 0;   // bytes that stages gave to the next one
};

}  // namespace dslaunch::text
