// The text of one request as its tokens come, up to its end: an end token, a stop text or the last
// token. Data path: engine -> [here] -> terminal, HTTP. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "decoder/codec/stop_texts.h"
#include "decoder/codec/text_codec.h"
#include "decoder/engine/engine.h"

namespace dslaunch::decoder {

class WrittenText {
  public:
    // STOPS: as StopTexts takes them.
    WrittenText(std::unique_ptr<TextStream> stream, std::vector<std::string> stops)
        : stream_(std::move(stream)), stops_(std::move(stops)) {}

    // The text that MADE makes certain. The token that ends a text is no part of it, nor is a stop
    // text; behind a stop nothing comes.
    [[nodiscard]] std::string push(const MadeToken& made);
    // Returns true if a stop text has ended it.
    [[nodiscard]] bool is_stopped() const { return stops_.is_stopped(); }

  private:
    std::unique_ptr<TextStream> stream_;
    StopTexts stops_;
};

}  // namespace dslaunch::decoder
