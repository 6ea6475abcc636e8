#include "base/text/torch_reason.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace dslaunch {
namespace {

constexpr size_t kNowhere = std::string_view::npos;
constexpr size_t kSourceBytesMax = 100;
constexpr std::string_view kHere = "<--- HERE";

struct Frame {
    std::string place;  // "model.py:11"
    std::string source;
    bool of_torch = false;
};

// Returns the lines of TEXT before the C++ stack frames.
std::vector<std::string> lines_of_model(std::string_view text) {
    std::vector<std::string> lines = split(text, '\n');
    const auto end = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
        return line.starts_with("Exception raised from ") ||
               line.starts_with("C++ CapturedTraceback") || line.starts_with("frame #");
    });
    lines.erase(end, lines.end());
    return lines;
}

// Returns the part of TEXT between PREFIX and END.
std::string_view between(std::string_view text, std::string_view prefix, std::string_view end) {
    const size_t begin = text.find(prefix);
    if (begin == kNowhere) return {};
    text.remove_prefix(begin + prefix.size());
    return text.substr(0, text.find(end));
}

// Returns true for a line of a traceback: `  File "model.py", line 11, in forward`.
bool is_frame(std::string_view line) {
    return trim(line).starts_with("File \"") && line.find("\", line ") != kNowhere;
}

// Returns the frame that begins at line BEGIN. The next lines quote the source, and a marker stands
// below the source line that failed.
Frame frame_at(const std::vector<std::string>& lines, size_t begin) {
    const std::string path(between(lines[begin], "File \"", "\""));
    const std::string line(trim(between(lines[begin], "\", line ", ",")));
    Frame frame{path + ":" + line, "", false};
    for (const char* own : {"/torch/nn/", "/torch/functional.py", "/torch/_", "/__torch__/torch/"})
        frame.of_torch = frame.of_torch || path.find(own) != std::string::npos;
    for (size_t i = begin + 1; i < lines.size() && !is_frame(lines[i]); ++i) {
        if (lines[i].find(kHere) == std::string::npos) continue;
        frame.source = std::string(trim(lines[i - 1])).substr(0, kSourceBytesMax);
        break;
    }
    return frame;
}

// Returns the location of the innermost frame in the model's own source. If there is no such frame,
// returns the location of the innermost frame.
std::string where_of(const std::vector<std::string>& lines) {
    std::vector<Frame> frames;
    for (size_t i = 0; i < lines.size(); ++i) {
        if (lines[i].starts_with("Traceback of TorchScript, original")) frames.clear();
        if (is_frame(lines[i])) frames.push_back(frame_at(lines, i));
    }
    if (frames.empty()) return {};
    const auto own = std::find_if(frames.rbegin(), frames.rend(),
                                  [](const Frame& frame) { return !frame.of_torch; });
    const Frame& frame = own == frames.rend() ? frames.back() : *own;
    return fmt::format(", at {}{}{}", frame.place, frame.source.empty() ? "" : ": ", frame.source);
}

// Returns the length of the kind of error at the beginning of LINE, such as `RuntimeError: ` or
// `builtins.ValueError: `; 0 if LINE does not begin with a kind of error.
size_t kind_length(std::string_view line) {
    const size_t colon = line.find(": ");
    if (colon == kNowhere) return 0;
    const std::string_view kind = line.substr(0, colon);
    if (kind.find(' ') != kNowhere) return 0;
    if (!kind.ends_with("Error") && !kind.ends_with("Exception")) return 0;
    return colon + 2;
}

// Returns the line that gives the reason: the last line that begins with a kind of error, such as
// `ValueError: `. If there is no such line, returns the first line that is not boilerplate.
std::string_view saying_line(const std::vector<std::string>& lines) {
    std::string_view first;
    std::string_view named;
    for (const std::string& line : lines) {
        const bool boilerplate = line.starts_with("The following operation failed") ||
                                 line.starts_with("Traceback of TorchScript") || trim(line).empty();
        if (first.empty() && !boilerplate) first = line;
        if (kind_length(line) > 0) named = line;
    }
    return trim(named.empty() ? first : named);
}

// Returns LINE without the location in LibTorch's source. Also drops the words `RuntimeError: ` and
// `IndexError: `, which say nothing about the reason.
std::string without_marks(std::string_view line) {
    const size_t kind = kind_length(line);
    if (line.starts_with("RuntimeError: ") || line.starts_with("IndexError: "))
        line.remove_prefix(kind);
    if (line.starts_with("builtins.")) line.remove_prefix(std::string_view("builtins.").size());
    const size_t place_end = line.starts_with('[') ? line.find("] ") : kNowhere;
    if (place_end != kNowhere && line.substr(0, place_end).find(".c") != kNowhere) {
        const bool condition = line.starts_with("[enforce fail at ");
        const size_t begin = condition ? line.find(". ", place_end) : place_end;
        if (begin != kNowhere) line.remove_prefix(begin + 2);
    }
    const size_t assert = line.find(" INTERNAL ASSERT FAILED at ");
    if (assert == kNowhere) return std::string(line);
    const std::string_view rest = trim(between(line, "please report a bug to PyTorch.", "\n"));
    return rest.empty()
               ? fmt::format("LibTorch's internal check `{}` failed", line.substr(0, assert))
               : std::string(rest);
}

bool is_capital(char c) {
    return c >= 'A' && c <= 'Z';
}

// Returns the first sentence of LINE, or the first two if the first has only a few words.
std::string_view first_sentence(std::string_view line) {
    constexpr int64_t kFewWords = 5;
    for (size_t end = line.find(". "); end != kNowhere; end = line.find(". ", end + 1)) {
        const size_t next = line.find_first_not_of(' ', end + 1);
        if (next == kNowhere || (!is_capital(line[next]) && line[next] != '(')) continue;
        const std::string_view sentence = line.substr(0, end);
        if (std::count(sentence.begin(), sentence.end(), ' ') + 1 < kFewWords) continue;
        return sentence;
    }
    while (line.ends_with('.') || line.ends_with(':') || line.ends_with(' ')) line.remove_suffix(1);
    return line;
}

}  // namespace

std::string torch_reason(std::string_view text) {
    const std::vector<std::string> lines = lines_of_model(text);
    const std::string what(first_sentence(without_marks(saying_line(lines))));
    return printable((what.empty() ? "LibTorch reports no reason" : what) + where_of(lines));
}

std::string torch_reason(const std::exception& error) {
    if (dynamic_cast<const Error*>(&error) != nullptr) return error.what();
    const std::string_view text = error.what();
    const std::string reason = torch_reason(text);
    if (reason != text) log_debug("torch", "{}", text);
    return reason;
}

}  // namespace dslaunch
