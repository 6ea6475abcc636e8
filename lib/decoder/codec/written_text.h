// Makes the text of one request from its tokens, up to its end: an end token, a stop text or the
// last token. Data path: engine -> [here] -> terminal, HTTP. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/codec/text_codec.h"
#include "decoder/engine/engine.h"

namespace dslaunch::decoder {

// A filter that ends a text before the first occurrence of a stop text. It holds back characters
// that may begin a stop text until the next characters show whether they do.
class StopTexts {
  public:
    // REQUIRES: no stop text is empty.
    explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

    // Adds TEXT. Returns the text that certainly belongs to no stop text; after a stop, nothing.
    [[nodiscard]] std::string push(std::string_view text);
    // Returns the text that was held back. Call it when no more text arrives.
    [[nodiscard]] std::string finish();
    // Returns true if a stop text occurred.
    [[nodiscard]] bool has_stopped() const { return has_stopped_; }

  private:
    std::vector<std::string> stops_;
    std::string held_;
    bool has_stopped_ = false;
};

// The next part of a text.
struct TextPiece {
    std::string text;
    int64_t tokens = 0;  // tokens made since the last piece
    TextEnd end = TextEnd::kNone;
};

// The text of one request.
class WrittenText {
  public:
    // STREAM: null if tokens are to be written as their numbers. STOPS: the stop texts for
    // StopTexts.
    WrittenText(std::unique_ptr<TextStream> stream, std::vector<std::string> stops)
        : stream_(std::move(stream)), stops_(std::move(stops)) {}

    // Adds MADE. Returns the text that is certain by now, and whether the text ends here. An end
    // token or a stop text is not part of the text. REQUIRES: the text has not ended.
    [[nodiscard]] TextPiece push(const MadeToken& made);

  private:
    std::unique_ptr<TextStream> stream_;
    StopTexts stops_;
};

}  // namespace dslaunch::decoder
