// The end of a text at the first of several strings, which is not part of it: text that may be the
// beginning of one is held back until it is known. Data path: TextStream -> [here] -> reader. One
// thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::decoder {

class StopTexts {
  public:
    // REQUIRES: none is empty.
    explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

    // The text that is certain once TEXT has come behind all before. After a stop: nothing more.
    [[nodiscard]] std::string push(std::string_view text);
    // What was held back, when no more text comes.
    [[nodiscard]] std::string finish();
    [[nodiscard]] bool is_stopped() const { return is_stopped_; }

  private:
    std::vector<std::string> stops_;
    std::string held_;
    bool is_stopped_ = false;
};

}  // namespace dslaunch::decoder
