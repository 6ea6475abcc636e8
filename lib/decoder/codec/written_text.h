// The text of one request as its tokens come, up to its end: an end token, a stop text or the last
// token. Data path: engine -> [here] -> terminal, HTTP. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/codec/text_codec.h"
#include "decoder/engine/engine.h"

namespace dslaunch::decoder {

// Ends a text at the first of several strings, which is not part of it. Text that may begin one of
// them is held back until that is known.
class StopTexts {
  public:
    // REQUIRES: no string is empty.
    explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

    // Returns the text that is certain now that TEXT has come. After a stop: nothing more.
    [[nodiscard]] std::string push(std::string_view text);
    // Returns what was held back, when no more text comes.
    [[nodiscard]] std::string finish();
    [[nodiscard]] bool stopped() const { return stopped_; }

  private:
    std::vector<std::string> stops_;
    std::string held_;
    bool stopped_ = false;
};

struct TextPiece {
    std::string text;
    int64_t tokens = 0;  // made since the last piece
    TextEnd end = TextEnd::kNone;
};

class WrittenText {
  public:
    // STREAM: null where tokens are written as their numbers. STOPS: as StopTexts takes them.
    WrittenText(std::unique_ptr<TextStream> stream, std::vector<std::string> stops)
        : stream_(std::move(stream)), stops_(std::move(stops)) {}

    // Returns the text that MADE makes certain, and whether it ends here. The token that ends a
    // text is no part of it, nor is a stop text. REQUIRES: it has not ended.
    [[nodiscard]] TextPiece push(const MadeToken& made);

  private:
    std::unique_ptr<TextStream> stream_;
    StopTexts stops_;
};

}  // namespace dslaunch::decoder
