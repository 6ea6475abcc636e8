#include "launch/hosts/hostfile.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kErrorsShownMax = 50;
// If more lines than this contain bytes outside ASCII, the file is probably not a hostfile.
constexpr size_t kOddLinesMax = 3;
constexpr std::array<std::string_view, 5> kKeys = {"slots", "gpus", "port", "addr", "max_slots"};

bool is_alnum(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_name_char(char c) {
    return is_alnum(c) || c == '.' || c == '_' || c == '-';
}
bool is_ipv6(std::string_view text) {
    std::array<unsigned char, 16> bytes{};
    if (text.find('\0') != std::string_view::npos) return false;  // inet_pton would stop there
    return inet_pton(AF_INET6, std::string(text).c_str(), bytes.data()) == 1;
}

bool is_user_name(std::string_view text) {
    if (text.empty() || text.size() > 64 || !(is_alnum(text[0]) || text[0] == '_')) return false;
    return std::all_of(text.begin(), text.end(), is_name_char);
}

struct OddBytes {
    std::string_view bytes;
    std::string_view what;
};
// Bytes that editors, chat programs and web pages write in place of ASCII characters.
constexpr std::array<OddBytes, 5> kOddBytes = {
    {{"\xef\xbb\xbf", "a byte order mark: save the file without it"},
     {"\xff\xfe", "UTF-16: save the file as UTF-8 or ASCII"},
     {"\xfe\xff", "UTF-16: save the file as UTF-8 or ASCII"},
     {"\xc2\xa0", "a non-breaking space: write a plain space"},
     {"\xe2\x80", "a typographic dash, quote or space: write a plain one"}}};

// Returns the number of slots that the user probably meant by the words after a host's name, such
// as `4`, `slots 4` or `slots = 4`; empty if they mean no number.
std::string meant_slots(std::span<const std::string_view> words) {
    if (words.empty()) return "";
    std::string text;
    for (const std::string_view word : words) text += word;
    const bool splits = words[0] == "slots" || words[0] == "slots=" || words[0] == "slots:";
    if (!splits && (words.size() > 1 || text.starts_with("slots="))) return "";
    if (text.starts_with("slots")) text.erase(0, 5);
    if (text.starts_with('=') || text.starts_with(':')) text.erase(0, 1);
    const bool is_number = !text.empty() && text.size() <= 4 && std::ranges::all_of(text, is_digit);
    return is_number ? text : "";
}

struct Token {
    std::string_view text;
    size_t column = 0;  // from 1, in bytes
};

std::vector<Token> tokens_of(std::string_view line) {
    std::vector<Token> tokens;
    size_t at = 0;
    while (at < line.size()) {
        at = line.find_first_not_of(" \t", at);
        if (at == std::string_view::npos) break;
        size_t end = line.find_first_of(" \t", at);
        if (end == std::string_view::npos) end = line.size();
        tokens.push_back({line.substr(at, end - at), at + 1});
        at = end;
    }
    return tokens;
}

class Parser {
  public:
    Parser(std::string_view text, std::string file_name)
        : text_(text), file_(std::move(file_name)) {}

    std::vector<Host> parse();

  private:
    template <typename... Args>
    void problem(size_t column, fmt::format_string<Args...> format, Args&&... args) {
        problems_.push_back(fmt::format("{}:{}:{}: {}", file_, line_, column,
                                        fmt::format(format, std::forward<Args>(args)...)));
    }
    void parse_line(std::string_view line);
    // If LINE contains a byte that is not ASCII, reports a problem and returns true.
    bool is_odd(std::string_view line);
    void read_keys(std::span<const Token> tokens, Host& host,
                   std::map<std::string, size_t>& columns);
    void read_key(const Token& token, Host& host, std::map<std::string, size_t>& columns);
    void read_gpus(std::string_view value, size_t column, Host& host);
    std::optional<int> read_number(std::string_view value, size_t column, std::string_view what,
                                   int most);
    // Returns the host names of the first word; empty after a problem.
    std::vector<std::string> read_names(Token token, Host& host);
    std::vector<std::string> expand(const Token& token, size_t open, size_t close);
    void add(const Host& host, const std::vector<std::string>& names, size_t column);
    void throw_problems() const;

    std::string_view text_;
    std::string file_;
    int line_ = 0;
    size_t odd_lines_ = 0;
    std::vector<std::string> problems_;
    std::vector<Host> hosts_;
    std::map<std::string, int> lines_by_name_;
};

// Returns the number of the first line that looks like YAML (`---`, `hosts:`, `- node1`); else 0.
int yaml_line(std::string_view text) {
    int number = 0;
    for (const std::string& line : split(text, '\n')) {
        ++number;
        const std::string_view words = trim(std::string_view(line).substr(0, line.find('#')));
        const bool is_key = words.ends_with(':') && words.find_first_of(" \t[") == words.npos;
        if (is_key || words == "---" || words.starts_with("- ")) return number;
    }
    return 0;
}

std::vector<Host> Parser::parse() {
    if (const int yaml = yaml_line(text_); yaml > 0)
        fail(ExitCode::kUsage,
             "{}:{}:1: this is YAML, but a hostfile has one host per line, such as `node1 slots=4`",
             file_, yaml);
    size_t at = 0;
    while (at < text_.size() && problems_.size() <= kErrorsShownMax && odd_lines_ <= kOddLinesMax) {
        ++line_;
        size_t end = text_.find('\n', at);
        if (end == std::string_view::npos) end = text_.size();
        std::string_view line = text_.substr(at, end - at);
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        parse_line(line);
        at = end + 1;
    }
    if (odd_lines_ > kOddLinesMax || (hosts_.empty() && problems_.size() > kOddLinesMax)) {
        fail(ExitCode::kUsage, "{}; more lines have such problems: is this file a hostfile?",
             problems_.front());
    }
    if (hosts_.empty() && problems_.empty()) {
        line_ = 1;
        problem(1, "this file contains no host; write one host per line, such as `node1 slots=4`");
    }
    if (!problems_.empty()) throw_problems();
    return std::move(hosts_);
}

void Parser::throw_problems() const {
    const size_t shown = std::min(problems_.size(), kErrorsShownMax);
    std::string message = join(std::span(problems_).first(shown), "\n");
    if (problems_.size() > shown) message += fmt::format("\n{}: more problems follow", file_);
    throw Error(ExitCode::kUsage, message);
}

bool Parser::is_odd(std::string_view line) {
    for (size_t i = 0; i < line.size(); ++i) {
        const auto byte = static_cast<unsigned char>(line[i]);
        if ((byte >= 0x20 && byte < 0x7f) || byte == '\t') continue;
        const auto known = std::ranges::find_if(
            kOddBytes, [&](const OddBytes& odd) { return line.substr(i).starts_with(odd.bytes); });
        problem(i + 1, "byte 0x{:02x} is not allowed; a hostfile is plain ASCII text{}", byte,
                known == kOddBytes.end() ? "" : fmt::format(" (this is {})", known->what));
        ++odd_lines_;
        if (known != kOddBytes.end() && known->what.starts_with("UTF-16")) text_ = {};
        return true;
    }
    return false;
}

void Parser::read_keys(std::span<const Token> tokens, Host& host,
                       std::map<std::string, size_t>& columns) {
    std::vector<std::string_view> words;
    for (const Token& token : tokens) words.push_back(token.text);
    const std::string slots = meant_slots(words);
    if (!slots.empty()) {
        problem(tokens[0].column, "`{}` is not KEY=VALUE; write slots={}, without spaces",
                fmt::join(words, " "), slots);
        return;
    }
    for (const Token& token : tokens) read_key(token, host, columns);
}

void Parser::parse_line(std::string_view line) {
    line = line.substr(0, line.find('#'));
    if (is_odd(line)) return;
    const std::vector<Token> tokens = tokens_of(line);
    if (tokens.empty()) return;
    if (tokens[0].text.starts_with(';') || tokens[0].text.starts_with("//")) {
        problem(tokens[0].column, "a comment begins with `#`");
        return;
    }
    const size_t problems_before = problems_.size();
    Host host;
    host.line = line_;
    const std::vector<std::string> names = read_names(tokens[0], host);
    // If a line begins with neither a name nor a range, the rest of it contains no keys either.
    if (names.empty() && !is_alnum(tokens[0].text[0]) && tokens[0].text[0] != '_') return;
    std::map<std::string, size_t> columns;
    read_keys(std::span(tokens).subspan(1), host, columns);
    if (problems_.size() == problems_before && host.slots == 0) {
        problem(tokens[0].column + tokens[0].text.size(),
                "`{}` has neither slots= nor gpus=; write `{} slots=N`", tokens[0].text,
                tokens[0].text);
    }
    if (names.size() > 1 && columns.contains("addr")) {
        problem(columns["addr"], "addr= gives one address to {} hosts; write one line for each",
                names.size());
    }
    if (problems_.size() == problems_before) add(host, names, tokens[0].column);
}

void Parser::read_key(const Token& token, Host& host, std::map<std::string, size_t>& columns) {
    const size_t equals = token.text.find('=');
    if (equals == std::string_view::npos || equals == 0) {
        problem(
            token.column,
            "`{}` is not KEY=VALUE; keys are slots, gpus, port, addr, without spaces around `=`",
            token.text);
        return;
    }
    std::string key(token.text.substr(0, equals));
    if (key == "max-slots") key = "max_slots";
    const std::string_view value = token.text.substr(equals + 1);
    const size_t column = token.column + equals + 1;
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
        const std::vector<std::string> known(kKeys.begin(), kKeys.end());
        const auto guess = nearest(key, known);
        problem(token.column, "unknown key `{}`{}", key,
                guess ? fmt::format(", did you mean `{}`?", *guess)
                      : "; keys are slots, gpus, port, addr");
        return;
    }
    if (!columns.emplace(key, token.column).second) {
        problem(token.column, "`{}=` is given twice for this host", key);
        return;
    }
    if ((key == "slots" && columns.contains("gpus")) ||
        (key == "gpus" && columns.contains("slots"))) {
        problem(token.column,
                "slots= and gpus= cannot be combined: gpus= lists the devices and so sets their "
                "number");
        return;
    }
    if (key == "slots") {
        host.slots = read_number(value, column, "slots", kSlotsMax).value_or(1);
    } else if (key == "port") {
        host.port = read_number(value, column, "port", 65'535).value_or(0);
    } else if (key == "max_slots") {  // Open MPI's limit; it has no effect, since no slot is used
                                      // twice here
        static_cast<void>(read_number(value, column, "max_slots", kSlotsMax));
    } else if (key == "gpus") {
        read_gpus(value, column, host);
    } else {
        const bool bracketed = value.size() > 2 && value.front() == '[' && value.back() == ']';
        const std::string_view bare = bracketed ? value.substr(1, value.size() - 2) : value;
        if (is_ipv6(bare) || (!bracketed && is_host_name(value))) {
            host.address = bare;
        } else {
            problem(column, "addr=`{}` is neither an address nor a host name", value);
        }
    }
}

std::optional<int> Parser::read_number(std::string_view value, size_t column, std::string_view what,
                                       int most) {
    const auto number = !value.empty() && is_digit(value[0]) ? parse_int(value) : std::nullopt;
    if (number && *number >= 1 && *number <= most) return static_cast<int>(*number);
    problem(column, "{}=`{}` is not a number from 1 to {}", what, value, most);
    return std::nullopt;
}

void Parser::read_gpus(std::string_view value, size_t column, Host& host) {
    std::set<int> seen;
    for (const std::string& piece : split(value, ',')) {
        const auto number = !piece.empty() && is_digit(piece[0]) ? parse_int(piece) : std::nullopt;
        if (!number || *number >= kSlotsMax) {
            problem(column, "`{}` is not a GPU number; write gpus=0,1 with numbers below {}", piece,
                    kSlotsMax);
        } else if (!seen.insert(static_cast<int>(*number)).second) {
            problem(column, "GPU {} is named twice", *number);
        } else {
            host.gpus.push_back(static_cast<int>(*number));
        }
        column += piece.size() + 1;
    }
    host.slots = std::max(1, static_cast<int>(host.gpus.size()));
}

std::vector<std::string> Parser::read_names(Token token, Host& host) {
    if (const size_t at = token.text.find('@'); at != std::string_view::npos) {
        host.user = token.text.substr(0, at);
        if (!is_user_name(host.user)) {
            problem(token.column, "`{}` is not a user name", host.user);
            return {};
        }
        token = {token.text.substr(at + 1), token.column + at + 1};
    }
    const size_t open = token.text.find('[');
    if (open != std::string_view::npos && open > 0) {
        const size_t close = token.text.find(']', open);
        if (close == std::string_view::npos) {
            problem(token.column + open, "`[` without `]`");
            return {};
        }
        return expand(token, open, close);
    }
    if (is_host_name(token.text)) return {std::string(token.text)};
    if (const size_t colon = token.text.find(':'); colon != std::string_view::npos && open != 0) {
        problem(token.column + colon,
                "`{}` is not a host name; write slots as `HOST slots=N`, ports as `port=N`, and "
                "IPv6 addresses in brackets",
                token.text);
    } else if (token.text.find(',') != std::string_view::npos) {
        problem(token.column, "`{}` is a list: write one host in each line", token.text);
    } else if (token.text.find('=') != std::string_view::npos) {
        problem(token.column, "expected a host name, found `{}`; write `HOST slots=N`", token.text);
    } else {
        problem(token.column,
                "`{}` is not a host name (use at most 253 letters, digits, `.`, `_` or `-`, "
                "beginning with a letter or digit)",
                token.text);
    }
    return {};
}

std::vector<std::string> Parser::expand(const Token& token, size_t open, size_t close) {
    const std::string_view prefix = token.text.substr(0, open);
    const std::string_view range = token.text.substr(open + 1, close - open - 1);
    const std::string_view suffix = token.text.substr(close + 1);
    const size_t column = token.column + open + 1;
    if (suffix.find('[') != std::string_view::npos) {
        problem(token.column + close + 1, "a host name can contain only one range");
        return {};
    }
    const ReadRange read = read_range(range, 0);
    if (read.fault == RangeFault::kNoNumber || read.is_single || read.end != range.size()) {
        problem(column, "`[{}]` is not a range; write [FIRST-LAST], such as te[1-4] or te[01-16]",
                range);
        return {};
    }
    const NumberRange& numbers = read.range;
    if (read.fault == RangeFault::kBackwards) {
        problem(column, "the range {} runs backwards", range);
        return {};
    }
    if (read.fault == RangeFault::kTooLong) {
        problem(column, "the range {} contains {} hosts, but at most {} are allowed", range,
                numbers.last - numbers.first + 1, kRangeHostsMax);
        return {};
    }
    const bool padded = numbers.digits > 1 && range[0] == '0';
    if (padded && range.size() != 2 * numbers.digits + 1) {
        problem(column,
                "both numbers of the zero-padded range {} must have the same number of digits",
                range);
        return {};
    }
    std::vector<std::string> names = numbers.names(prefix, suffix);
    for (const std::string& name : names) {
        if (is_host_name(name)) continue;
        problem(token.column, "`{}` is not a host name", name);
        return {};
    }
    return names;
}

void Parser::add(const Host& host, const std::vector<std::string>& names, size_t column) {
    if (hosts_.size() + names.size() > static_cast<size_t>(kHostsMax)) {
        problem(column, "the hostfile contains more than {} hosts", kHostsMax);
        return;
    }
    for (const std::string& name : names) {
        const auto [entry, fresh] = lines_by_name_.emplace(lower(name), line_);
        if (!fresh) {
            problem(column,
                    "host `{}` is already on line {}; write each host once, with all its slots",
                    name, entry->second);
            return;
        }
        hosts_.push_back(host);
        hosts_.back().name = name;
    }
}

struct NodeSpec {
    std::string node;
    std::vector<int> slots;  // empty: all
};

std::vector<NodeSpec> parse_spec(const std::string& text, const char* option) {
    std::vector<NodeSpec> specs;
    for (const std::string& piece : split(text, '@')) {
        // An IPv6 name contains colons inside its brackets.
        const size_t bracket = piece.find(']');
        const size_t colon = piece.find(':', bracket == std::string::npos ? 0 : bracket);
        NodeSpec spec{piece.substr(0, colon), {}};
        if (!is_host_name(spec.node)) {
            fail(ExitCode::kUsage,
                 "{} `{}`: `{}` is not a host name; write NODE[:SLOT[,SLOT]][@NODE…]{}", option,
                 printable(text), printable(spec.node),
                 is_digit(piece.empty() ? ' ' : piece[0])
                     ? fmt::format(", such as localhost:{} for this machine", printable(piece))
                     : "");
        }
        if (colon != std::string::npos) {
            for (const std::string& slot : split(piece.substr(colon + 1), ',')) {
                const auto number = parse_int(slot);
                if (!number || *number < 0 || *number >= kSlotsMax) {
                    fail(ExitCode::kUsage, "{} `{}`: `{}` is not a slot number", option,
                         printable(text), printable(slot));
                }
                spec.slots.push_back(static_cast<int>(*number));
            }
        }
        specs.push_back(std::move(spec));
    }
    return specs;
}

std::vector<int> all_slots(const Host& host) {
    std::vector<int> slots = host.gpus;
    for (int i = 0; host.gpus.empty() && i < host.slots; ++i) slots.push_back(i);
    std::sort(slots.begin(), slots.end());
    return slots;
}

std::string list_text(const std::vector<int>& numbers) {
    return fmt::format("{}", fmt::join(numbers, ","));
}

const Host& find_host(const std::vector<Host>& hosts, const std::string& name, const char* option) {
    const auto found = std::ranges::find(hosts, name, &Host::name);
    if (found != hosts.end()) return *found;
    std::vector<std::string> names;
    for (const Host& host : hosts) names.push_back(host.name);
    const auto guess = nearest(name, names);
    if (names.size() == 1 && !guess)
        fail(ExitCode::kUsage, "{}: host `{}` is not known: the only host is `{}`; {}", option,
             name, names.front(),
             parse_int(name) ? fmt::format("slots follow a colon: {}:{}", names.front(), name)
                             : "--hostfile FILE names others");
    fail(ExitCode::kUsage, "{}: host `{}` is not in the hostfile{}", option, name,
         guess ? fmt::format(", did you mean `{}`?", *guess) : "");
}

// Checks that every name and slot exists.
void check_spec(const std::vector<Host>& hosts, const std::vector<NodeSpec>& specs,
                const char* option) {
    for (const NodeSpec& spec : specs) {
        const std::vector<int> known = all_slots(find_host(hosts, spec.node, option));
        for (const int slot : spec.slots) {
            if (!std::binary_search(known.begin(), known.end(), slot)) {
                fail(ExitCode::kUsage, "{}: host `{}` has no slot {}; its slots are {}", option,
                     spec.node, slot, list_text(known));
            }
        }
    }
}

// Returns true if an entry of SPECS names SLOT of NODE. There may be several entries for a host.
bool is_named(const std::vector<NodeSpec>& specs, const std::string& node, int slot) {
    return std::any_of(specs.begin(), specs.end(), [&](const NodeSpec& spec) {
        return spec.node == node &&
               (spec.slots.empty() || std::count(spec.slots.begin(), spec.slots.end(), slot) > 0);
    });
}

void check_exclusions(const HostFilter& filter) {
    if (!filter.include.empty() && !filter.exclude.empty()) {
        fail(ExitCode::kUsage, "--include and --exclude cannot be combined; give only one");
    }
    const bool named = !filter.include.empty() || !filter.exclude.empty();
    if (named && (filter.num_nodes || filter.num_gpus)) {
        fail(ExitCode::kUsage, "--{} cannot be given together with --{}",
             filter.num_nodes ? "num_nodes" : "num_gpus",
             filter.include.empty() ? "exclude" : "include");
    }
    if (filter.num_nodes && *filter.num_nodes < 1)
        fail(ExitCode::kUsage, "--num_nodes must be at least 1");
    if (filter.num_gpus && *filter.num_gpus < 1)
        fail(ExitCode::kUsage, "--num_gpus must be at least 1");
}

std::vector<HostSlots> first_ones(const std::vector<Host>& hosts, const HostFilter& filter) {
    const size_t nodes = filter.num_nodes ? static_cast<size_t>(*filter.num_nodes) : hosts.size();
    if (nodes > hosts.size()) {
        fail(ExitCode::kUsage, "--num_nodes {}: there are only {} hosts", nodes, hosts.size());
    }
    std::vector<HostSlots> chosen;
    std::vector<std::string> short_hosts;
    for (size_t i = 0; i < nodes; ++i) {
        HostSlots entry{hosts[i], all_slots(hosts[i])};
        if (filter.num_gpus) {
            const auto wanted = static_cast<size_t>(*filter.num_gpus);
            if (wanted > entry.slots.size()) {
                short_hosts.push_back(
                    fmt::format("`{}` has {}", entry.host.name, entry.slots.size()));
            }
            entry.slots.resize(std::min(wanted, entry.slots.size()));
        }
        chosen.push_back(std::move(entry));
    }
    if (!short_hosts.empty()) {
        fail(ExitCode::kUsage, "--num_gpus {} is more than the slots of some hosts: {}",
             *filter.num_gpus, join(short_hosts, ", "));
    }
    return chosen;
}

}  // namespace

std::vector<Host> parse_hostfile(std::string_view text, const std::string& file_name) {
    return Parser(text, file_name).parse();
}

std::vector<Host> read_hostfile(const std::string& path) {
    std::string text;
    std::error_code unreadable;
    if (std::filesystem::is_directory(path, unreadable))
        fail(ExitCode::kUsage,
             "hostfile {} is a folder: give a file with one host per line, such as `node1 slots=4`",
             printable(path));
    try {
        text = read_file(path, kHostfileBytesMax);
    } catch (const Error& error) {
        const bool is_missing = ::access(path.c_str(), F_OK) != 0;
        fail(ExitCode::kUsage, "hostfile {}{}", error.what(),
             is_missing ? "; a hostfile has one host per line, such as `node1 slots=4`" : "");
    }
    return parse_hostfile(text, path);
}

bool is_host_name(std::string_view text) {
    if (text.empty() || text.size() > 253) return false;
    if (text.front() == '[')
        return text.size() > 2 && text.back() == ']' && is_ipv6(text.substr(1, text.size() - 2));
    return is_alnum(text.front()) && std::all_of(text.begin(), text.end(), is_name_char);
}

bool is_this_machine(std::string_view host, std::string_view machine_name) {
    const std::string name = lower(host);
    const std::string own = lower(machine_name);
    if (name == "localhost" || name == "[::1]" || name.starts_with("127.")) return true;
    if (own.empty()) return false;
    const auto short_name = [](const std::string& full) { return full.substr(0, full.find('.')); };
    const bool same_domain =
        name.find('.') == std::string::npos || own.find('.') == std::string::npos;
    return name == own || (same_domain && short_name(name) == short_name(own));
}

std::vector<HostSlots> apply_filter(const std::vector<Host>& hosts, const HostFilter& filter) {
    check_exclusions(filter);
    if (filter.include.empty() && filter.exclude.empty()) return first_ones(hosts, filter);
    const bool including = !filter.include.empty();
    const char* option = including ? "--include" : "--exclude";
    const std::vector<NodeSpec> specs =
        parse_spec(including ? filter.include : filter.exclude, option);
    check_spec(hosts, specs, option);
    std::vector<HostSlots> chosen;
    for (const Host& host : hosts) {
        HostSlots entry{host, {}};
        for (const int slot : all_slots(host))
            if (is_named(specs, host.name, slot) == including) entry.slots.push_back(slot);
        if (!entry.slots.empty()) chosen.push_back(std::move(entry));
    }
    if (chosen.empty())
        fail(ExitCode::kUsage, "--exclude `{}` leaves no slot for a worker", filter.exclude);
    return chosen;
}

int named_slots(const std::string& include, const std::string& host) {
    if (include.empty()) return 0;
    int count = 0;
    for (const NodeSpec& spec : parse_spec(include, "--include")) {
        if (spec.node != host) continue;
        for (const int slot : spec.slots) count = std::max(count, slot + 1);
    }
    return count;
}

}  // namespace dslaunch::launch
