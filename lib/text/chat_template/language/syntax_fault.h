// An error of a template's text, with its line.
#pragma once

#include "text/chat_template/values/limits.h"

#include <string>

namespace dslaunch::text::jinja {

class SyntaxFault : public Fault {
  public:
    SyntaxFault(int line, const std::string& message) : Fault(message), line_(line) {}
    [[nodiscard]] int line() const { return line_; }

  private:
    int line_;
};

}  // namespace dslaunch::text::jinja
