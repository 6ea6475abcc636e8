#include "worker/data/sample_lines.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/json.h"
#include "base/text/words.h"
#include "storage/files/file_kind.h"
#include "storage/files/input_file.h"
#include "storage/files/mapped_file.h"
#include "storage/huggingface/named_place.h"
#include "text/chat/row_columns.h"
#include "text/chat/row_form.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kLinesOfBlock = 512;
constexpr int64_t kBytesOfBlock = int64_t{8} << 20;
constexpr int64_t kTextPieceBytes = int64_t{1} << 20;

constexpr int kEnd = std::istream::traits_type::eof();
constexpr std::string_view kMark = "\xef\xbb\xbf";  // the byte order mark of UTF-8

bool is_blank(int byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

struct Packing {
    std::string_view begin, name, remedy;
};
constexpr std::array<Packing, 8> kPackings = {{{"\x1f\x8b", "gzip", "gunzip -c"},
                                               {"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"},
                                               {"\xfd"
                                                "7zXZ",
                                                "xz", "xz -dc"},
                                               {"BZh", "bzip2", "bzip2 -dc"},
                                               {"PK\x03\x04", "zip", "unzip -p"},
                                               {"7z\xbc\xaf", "7z", "7z x -so"},
                                               {"Rar!\x1a", "rar", "unrar p -inul"},
                                               {"\x04\x22\x4d\x18", "lz4", "lz4 -dc"}}};

// Returns the error message for PATH, which is a folder. If Python's datasets wrote the folder, the
// message tells how to convert it to lines of JSON. Otherwise, it suggests files of the folder.
std::string folder_text(const std::string& path) {
    std::set<std::string> names, endings;
    std::error_code unreadable;
    for (const auto& entry : std::filesystem::directory_iterator(path, unreadable)) {
        names.insert(entry.path().filename().string());
        endings.insert(entry.path().extension().string());
    }
    const std::string name = printable(path);
    const bool is_split = names.contains("dataset_dict.json");
    if (is_split || names.contains("dataset_info.json") || endings.contains(".arrow"))
        return fmt::format(
            "{0}: is a folder that datasets' save_to_disk wrote, but lines of JSON are expected: "
            "in Python datasets.load_from_disk(\"{0}\"){1}.to_json(\"rows.jsonl\")",
            name, is_split ? "[\"train\"]" : "");
    for (const char* ending : {".jsonl", ".json", ".parquet", ".txt"})
        if (endings.contains(ending))
            return fmt::format("{0}: is a folder: name the files in it, e.g. {0}/*{1}", name,
                               ending);
    return fmt::format("{0}: is a folder: name the files in it, e.g. {0}/*.jsonl", name);
}

// Refuses a tar archive and an Arrow file. The decision is based on LINE, the first line of the
// file. NAME names the file.
void refuse_container(const std::string& line, const std::string& name) {
    constexpr size_t kTarMarkAt = 257;
    if (line.size() > kTarMarkAt && line.compare(kTarMarkAt, 5, "ustar") == 0)
        fail(ExitCode::kInput,
             "{}: is a tar archive: unpack it (tar -xf FILE), and name the files in it", name);
    const bool is_stream = line.starts_with("\xff\xff\xff\xff");
    if (is_stream || line.starts_with("ARROW1"))
        fail(ExitCode::kInput, "{}: is an Arrow file, but lines of JSON are expected: in Python {}",
             name,
             is_stream ? "datasets.Dataset.from_file(\"FILE\").to_json(\"FILE.jsonl\")"
                       : "pandas.read_feather(\"FILE\").to_json(\"FILE.jsonl\", "
                         "orient=\"records\", lines=True)");
}

// Returns true for a CSV file or the like. It is recognized by its name, or by column names in
// LINE, the first line.
bool is_table(const std::string& path, const std::string& line) {
    const std::string name = lower(path);
    if (name.ends_with(".csv") || name.ends_with(".tsv")) return true;
    if (line.find_first_of("{[") != std::string::npos) return false;
    bool has_column = false;
    size_t cells = 0;
    for (size_t begin = 0; begin <= line.size(); ++cells) {
        const size_t end = std::min(line.find_first_of(",;\t", begin), line.size());
        std::string_view cell = trim(std::string_view(line).substr(begin, end - begin));
        if (cell.size() > 1 && cell.front() == '"' && cell.back() == '"')
            cell = cell.substr(1, cell.size() - 2);
        has_column = has_column || std::ranges::count(text::row_columns(), cell) > 0;
        begin = end + 1;
    }
    return has_column && cells > 1;
}

// Returns true if PATH is named like a plain text, compressed or not.
bool is_named_text(const std::string& path) {
    const std::string name = lower(std::filesystem::path(path).filename().string());
    return std::ranges::any_of(std::array{".txt", ".text", ".md"}, [&](const std::string& ending) {
        return name.ends_with(ending) || name.find(ending + ".") != name.npos;
    });
}

struct Document {
    std::string_view endings, kind, remedy;  // ENDINGS: separated by blanks
};
constexpr std::array<Document, 5> kDocuments = {
    {{".xlsx .xlsm .xls .ods", "a spreadsheet",
      "save it as CSV, and convert the CSV file in Python with "
      "datasets.Dataset.from_csv(\"NEW.csv\").to_json(\"NEW.jsonl\")"},
     {".docx .doc .odt .rtf", "a document of a word processor", "save it as plain text, NEW.txt"},
     {".pptx .ppt .odp", "a presentation", "save its text as NEW.txt"},
     {".pdf", "a PDF document", "pdftotext FILE NEW.txt"},
     {".epub", "a book", "pandoc -t plain FILE -o NEW.txt"}}};

// Refuses the file at PATH if it contains rows, a model, arrays or an image. Decides by its
// content, or for a pipe by LINE, its first line.
void refuse_binary(const std::string& path, const std::string& line) {
    const std::string name = printable(path);
    for (const std::string_view begin : {"\x89PNG", "\xff\xd8\xff", "GIF8"})
        if (line.starts_with(begin))
            fail(ExitCode::kInput, "{}: is an image, but lines of JSON or plain text are expected",
                 name);
    std::error_code unreadable;
    if (!std::filesystem::is_regular_file(path, unreadable)) return;
    if (storage::is_file_of_rows(path))
        fail(ExitCode::kInput, "{}: contains rows already: train with --data {}", name,
             shell_word(path));
    switch (storage::file_kind(storage::MappedFile(path).bytes())) {
        case storage::FileKind::kTorchScript:
        case storage::FileKind::kExportedProgram:
        case storage::FileKind::kPickle:
        case storage::FileKind::kSafetensors:
        case storage::FileKind::kOnnx:
        case storage::FileKind::kGguf:
        case storage::FileKind::kNpy:
        case storage::FileKind::kNpz:
            fail(ExitCode::kInput, "{}: {}, but lines of JSON or plain text are expected", name,
                 storage::file_text(path));
        default:
            return;
    }
}

// Refuses the file at PATH if it is a document, which contains more than its text. Decides by the
// file's name, and by LINE, its first line.
void refuse_document(const std::string& path, const std::string& line) {
    const std::string name = lower(path), begin = lower(trim(line.substr(0, 256)));
    for (const auto& [endings, kind, remedy] : kDocuments)
        for (const std::string& ending : split(endings, ' '))
            if (name.ends_with(ending) || (ending == ".pdf" && begin.starts_with("%pdf-")))
                fail(ExitCode::kInput,
                     "{}: is {}, but lines of JSON or plain text are expected: {}", printable(path),
                     kind, remedy);
    if (is_named_text(path)) return;
    const bool is_page = begin.starts_with("<!doctype html") || begin.starts_with("<html") ||
                         begin.starts_with("<?xml");
    if (is_page || name.ends_with(".html") || name.ends_with(".htm"))
        fail(ExitCode::kInput,
             "{}: is a web page or other XML, but lines of JSON or plain text are expected: save "
             "its text as NEW.txt, for example with pandoc -t plain FILE -o NEW.txt",
             printable(path));
}

// Returns true if the file is named like a plain text, and its first line, LINE, does not begin
// like JSON.
bool is_plain_text(const std::string& path, const std::string& line) {
    return is_named_text(path) && !trim(line).starts_with('{');
}

// Returns a command line in which COMMAND converts the file at PATH. For a plain text, COMMAND
// writes a new file instead of a pipe: dslaunch recognizes a plain text by the name of its file.
std::string converting_command(const std::string& path, std::string_view command) {
    return is_named_text(path) ? fmt::format("use `{} FILE > NEW.txt`, and give NEW.txt", command)
                               : fmt::format("use `{} FILE | dslaunch data prepare - …`", command);
}

}  // namespace

bool JsonObjects::are_begun_by(std::string_view line) {
    if (line.starts_with(kMark)) line.remove_prefix(kMark.size());
    const std::string_view text = trim(line);
    return text.starts_with("[") || text == "{" || text.find("}\r{") != std::string_view::npos;
}

JsonObjects::JsonObjects(std::istream& in, std::string begin)
    : in_(in), begin_(std::move(begin) + "\n"), at_(begin_.starts_with(kMark) ? kMark.size() : 0) {
    held_ = sign();
    list_ = held_ == '[';
    if (list_) held_ = -1;
}

int JsonObjects::byte() {
    if (held_ >= 0) return std::exchange(held_, -1);
    if (at_ < begin_.size()) return static_cast<unsigned char>(begin_[at_++]);
    return in_.rdbuf()->sbumpc();
}

int JsonObjects::sign() {
    int found = byte();
    while (is_blank(found)) found = byte();
    return found;
}

bool JsonObjects::next(std::string& text, size_t bytes_max) {
    text.clear();
    int found = sign();
    while (found == ',') found = sign();
    if (list_ && found == ']') {
        require_end();
        return false;
    }
    if (found == kEnd) {
        if (list_)
            fail(ExitCode::kInput,
                 "the file ends before its JSON list does: a part of the file is missing");
        return false;
    }
    int depth = 0;
    bool is_in_text = false;
    for (;; found = byte()) {
        if (found == kEnd) return true;
        const bool ends_value = depth == 0 && !is_in_text && !text.empty();
        if (ends_value && (found == ',' || found == ']' || is_blank(found))) {
            held_ = found;
            return true;
        }
        if (text.size() < bytes_max) text += static_cast<char>(found);
        if (is_in_text && found == '\\') {
            const int next = byte();
            if (next != kEnd && text.size() < bytes_max) text += static_cast<char>(next);
        } else if (found == '"') {
            is_in_text = !is_in_text;
        } else if (!is_in_text) {
            depth += found == '{' || found == '[' ? 1 : found == '}' || found == ']' ? -1 : 0;
            if (depth == 0 && found == '}') return true;
        }
    }
}

void JsonObjects::require_end() {
    if (sign() != kEnd) fail(ExitCode::kInput, "the file continues after the end of its JSON list");
}

std::vector<SampleLine> SampleLines::next() {
    std::vector<SampleLine> lines;
    const int64_t before = bytes_;
    while (lines.size() < kLinesOfBlock && bytes_ - before < kBytesOfBlock) {
        if (in_ == nullptr && rows_ == nullptr && !open_next()) break;
        const bool has_more = rows_ != nullptr ? add_rows(lines)
                              : objects_       ? add_object(lines)
                                               : add_line(lines);
        if (has_more) continue;
        in_ = nullptr;
        objects_.reset();
        rows_.reset();
    }
    return lines;
}

bool SampleLines::open_next() {
    if (file_ == files_.size()) return false;
    ++file_;
    number_ = 0;
    begun_ = false;
    piece_.reset();
    if (path() == "-") {
        in_ = &std::cin;
        return true;
    }
    std::error_code unreadable;
    if (std::filesystem::is_directory(path(), unreadable))
        throw Error(ExitCode::kInput, folder_text(path()));
    opened_ = std::ifstream(path());
    if (!opened_) {
        const std::string cause = errno_text(errno);
        fail(ExitCode::kInput, "{}: cannot be read: {}{}", printable(path()), cause,
             near_file_text(path()) + storage::hub_data_text(path()));
    }
    if (storage::is_parquet(path())) {
        has_text_ = true;
        rows_ = storage::open_table(path(), text::row_columns());
    } else {
        in_ = &opened_;
    }
    return true;
}

// Adds a piece of a plain text: whole lines that form one document.
bool SampleLines::add_text(std::vector<SampleLine>& lines) {
    const int64_t first = number_;
    std::string line;
    while (std::ssize(*piece_) < kTextPieceBytes && std::getline(*in_, line)) {
        ++number_;
        if (line.ends_with('\r')) line.pop_back();
        *piece_ += line;
        if (!in_->eof()) *piece_ += '\n';
    }
    if (in_->bad())
        fail(ExitCode::kInput, "{}: cannot be read: {}", printable(path()), errno_text(errno));
    if (trim(*piece_).empty()) return false;
    bytes_ += std::ssize(*piece_);
    lines.push_back({fmt::format("{{\"text\": {}}}", json_quote(*piece_)), "", file_ - 1,
                     std::max(first, int64_t{1})});
    piece_ = "";
    return true;
}

bool SampleLines::add_line(std::vector<SampleLine>& lines) {
    if (piece_) return add_text(lines);
    std::string text;
    if (!std::getline(*in_, text)) {
        if (in_->bad())
            fail(ExitCode::kInput, "{}: cannot be read: {}", printable(path()), errno_text(errno));
        return false;
    }
    ++number_;
    const bool is_blank = text.find_first_not_of(" \t\r") == std::string::npos;
    if (!begun_ && !is_blank) {
        begun_ = has_text_ = true;
        check_begin(text);
        if (JsonObjects::are_begun_by(text)) {
            number_ = 0;
            objects_.emplace(*in_, std::move(text));
            return true;
        }
        if (is_plain_text(path(), text)) {
            if (text.ends_with('\r')) text.pop_back();
            piece_ = in_->eof() ? text : text + "\n";
            return add_text(lines);
        }
    }
    bytes_ += std::ssize(text) + 1;
    if (!is_blank) lines.push_back({std::move(text), "", file_ - 1, number_});
    return true;
}

bool SampleLines::add_object(std::vector<SampleLine>& lines) {
    std::string text;
    try {
        if (!objects_->next(text, text::kRowBytesMax + 1)) return false;
    } catch (const Error& error) {
        fail(error.code(), "{}: {}", printable(path()), error.what());
    }
    bytes_ += std::ssize(text) + 1;
    lines.push_back({std::move(text), "", file_ - 1, ++number_});
    return true;
}

// Refuses a file that is not lines of JSON. The decision is based on LINE, the first line that is
// not blank.
void SampleLines::check_begin(const std::string& line) const {
    const std::string name = printable(path());
    if (line.starts_with("PAR1"))
        fail(
            ExitCode::kInput,
            "{}: is a Parquet file, which cannot be read from a pipe: give the file's name instead",
            name);
    refuse_container(line, name);
    refuse_document(path(), line);
    refuse_binary(path(), line);
    for (const auto& [begin, kind, remedy] : kPackings)
        if (line.starts_with(begin))
            fail(ExitCode::kInput, "{}: is compressed ({}), so decompress it: {}", name, kind,
                 converting_command(path(), remedy));
    if (line.find_first_not_of('\0') == std::string::npos)
        fail(ExitCode::kInput, "{}: {}", name, download_fault(line));
    if (line.starts_with("\xff\xfe") || line.starts_with("\xfe\xff") ||
        line.substr(0, 2).find('\0') != std::string::npos)
        fail(ExitCode::kInput, "{}: is UTF-16, but must be UTF-8: {}", name,
             converting_command(path(), "iconv -f UTF-16 -t UTF-8"));
    const std::string lower_name = lower(path());
    if (lower_name.ends_with(".yaml") || lower_name.ends_with(".yml"))
        fail(ExitCode::kInput,
             "{}: is YAML, but lines of JSON are expected: in Python "
             "datasets.Dataset.from_list(yaml.safe_load(open(\"FILE\"))).to_json(\"FILE.jsonl\")",
             name);
    if (is_table(path(), line))
        fail(ExitCode::kInput,
             "{}: is a table with commas or tabs (CSV, TSV), but must be lines of JSON: convert it "
             "in Python with datasets.Dataset.from_csv(\"FILE\"{}).to_json(\"FILE.jsonl\")",
             name, line.find('\t') == std::string_view::npos ? "" : ", sep=\"\\t\"");
}

bool SampleLines::add_rows(std::vector<SampleLine>& lines) {
    std::vector<storage::TableRow> rows = rows_->next();
    for (storage::TableRow& row : rows) {
        bytes_ += std::ssize(row.json) + 1;
        lines.push_back({std::move(row.json), std::move(row.reason), file_ - 1, ++number_});
    }
    return !rows.empty();
}

}  // namespace dslaunch::worker
