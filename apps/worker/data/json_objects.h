// Finds the objects of a JSON file that holds them in a list, or over several lines each. It looks
// for their brackets and does not check what is inside. Data path: .json -> [here] ->
// sample_lines.h. Blocks on the disk; one thread.
#pragma once

#include <istream>
#include <string>
#include <string_view>

namespace dslaunch::worker {

class JsonObjects {
  public:
    // True if LINE, the first of a file, begins a list, or an object that goes on in other lines.
    [[nodiscard]] static bool are_begun_by(std::string_view line);

    // BEGIN is the line of the file that has been read from IN, which must outlive this.
    JsonObjects(std::istream& in, std::string begin);

    // Makes TEXT the next object or other value, of which BYTES_MAX are kept; false: that was all.
    // Throws Error{kInput}: the file ends within its list, or goes on after it.
    [[nodiscard]] bool next(std::string& text, size_t bytes_max);

  private:
    [[nodiscard]] int byte();
    [[nodiscard]] int sign();
    void require_end();

    std::istream& in_;
    std::string begin_;
    size_t at_ = 0;  // in begin_
    bool is_list_ = false;
    int held_ = -1;  // a byte that was read too early; -1: there is none
};

}  // namespace dslaunch::worker
