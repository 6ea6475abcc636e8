// P31, P32: the output of ranks is complete and in order, and a terminal gets it only as plain
// text. Negative controls, done by hand: if an agent leaves after a second although its launcher
// still reads (Agent::flush_before_leaving), the first test missed 2,272 of 55,482 lines on a busy
// machine; if main() prints what() unchanged, the test of the command line finds ESC bytes.
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "cluster/promise.h"
#include "support/pty_process.h"

namespace dslaunch::test {
namespace {

struct Log {
    std::map<std::string, int> lines;  // lines of each stream
    bool in_order = true;
};

Log read_log(const std::string& path, int rank) {
    Log log;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const std::string stream = line.substr(0, 3);
        char wanted[64];
        std::snprintf(wanted, sizeof wanted, "%s %08d of rank %d", stream.c_str(),
                      log.lines[stream]++, rank);
        log.in_order = log.in_order && line == wanted;
    }
    return log;
}

// Returns the number of lines that the rank had written when it died, by its own count.
long written_by(const std::string& path) {
    long lines = 0;
    std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&lines), sizeof lines);
    return lines;
}

// Runs ranks that each write LINES lines and then kill themselves. The first rank that dies ends
// the others in the middle of their writing.
void count_lines(int lines, int rounds) {
    long written = 0, kept = 0;
    int disorder = 0;
    for (int round = 0; round < rounds; ++round) {
        const TemporaryFolder folder;
        const std::string output = folder.path() + "/out";
        JobProcess job(folder, on_pretended_hosts(folder, "h[1-4] slots=4\n") +
                                   Words{"--output", output, kStub, "lines", std::to_string(lines),
                                         "kill", folder.path() + "/written"});
        REQUIRE(job.wait() == 128 + SIGKILL);
        for (int rank = 0; rank < 16; ++rank) {
            const Log log = read_log(output + "/logs/rank-" + std::to_string(rank) + ".log", rank);
            disorder += log.in_order ? 0 : 1;
            for (const auto& [stream, count] : log.lines) kept += count;
            written += written_by(folder.path() + "/written." + std::to_string(rank));
        }
    }
    std::printf(
        "P31 16 ranks, both streams, all killed: %ld lines written, %ld lost, %d logs out "
        "of order\n",
        written, written - kept, disorder);
    // A rank may be killed after it has written a line but before it has counted the line, so one
    // more line is correct.
    CHECK(kept >= written);
    CHECK(kept <= written + 16 * rounds);
    CHECK(disorder == 0);
}

// Returns texts that a terminal would obey, one per line.
std::string attacks() {
    return "\x1b[31mred\x1b[0m\n"
           "\x1b]0;title\x07\n"
           "\x1b]52;c;cm0gLXJm\x07\n"
           "\x1bP+q544e\x1b\\\n"
           "\x1b[2J\x1b[H\n"
           "\x1b[?1049h\n"
           "\x1b[6n\n"
           "\x1b"
           "c\n"
           "back\b\b\b\bspace\n"
           "over\rwritten\n"
           "\x9b"
           "31m eight bit\n"
           "\xc2\x9b"
           "31m as UTF-8\n"
           "\x90q\x9c\n"
           "bell\x07 form\x0c tab\x0b del\x7f so\x0e si\x0f\n"
           "\xff\xfe broken \xc3\x28 \xe2\x82 utf-8\n"
           "\xe2\x80\xae turned round\n"
           "plain \xc3\xa9 and \xe6\x97\xa5\n";
}

// Removes from TEXT the codes that the launcher itself sends to a terminal. The launcher erases a
// line, and it overwrites a rank's incomplete line, which begins with the rank's number, by a
// longer piece of it.
void erase_own_words(std::string& text) {
    const std::string erase = "\x1b[K";
    for (size_t at = 0; (at = text.find('\r', at)) != std::string::npos;) {
        const size_t end = text.find_first_of("\r\n\x1b", at + 1);
        const bool is_own = end != std::string::npos && text.compare(end, 3, erase) == 0 &&
                            (end == at + 1 || text[at + 1] == '[');
        if (is_own) text.erase(end, erase.size()).erase(at, 1);
        at += is_own ? 0 : 1;
    }
}

// Returns the number of bytes that a terminal could obey, not counting the launcher's own.
int obeyed_bytes(std::string text) {
    erase_own_words(text);
    int count = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        // The terminal itself puts \r before each \n.
        const bool line_end = byte == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
        const bool plain = (byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t';
        // Beyond ASCII, only the two letters of the last line and the launcher's own ellipsis may
        // appear.
        size_t letter = 0;
        for (const std::string known : {"\xc3\xa9", "\xe6\x97\xa5", "\xe2\x80\xa6"})
            if (text.compare(i, known.size(), known) == 0) letter = known.size();
        if (letter > 0) i += letter - 1;
        count += plain || line_end || letter > 0 ? 0 : 1;
    }
    return count;
}

}  // namespace

TEST_CASE("P31: no line that a rank wrote is lost or out of order when it is killed") {
    count_lines(2'000, 1);
}
TEST_CASE("P31 with half a million lines", "[.long]") {
    count_lines(20'000, 10);
}

TEST_CASE("P32: what a rank writes reaches a terminal as text, in lines and in the report") {
    ::setenv("NO_COLOR", "1", 1);
    const TemporaryFolder folder;
    std::ofstream(folder.path() + "/attacks", std::ios::binary) << attacks();
    PtyProcess job(on_pretended_hosts(folder, "h1 slots=2\n") +
                   Words{kStub, "write", folder.path() + "/attacks"});
    CHECK(job.wait() == 3);
    INFO(job.shown());
    CHECK(mentions(job.shown(), "failed first: exit code 3"));
    CHECK(mentions(job.shown(), "plain \xc3\xa9 and \xe6\x97\xa5"));
    const int obeyed = obeyed_bytes(job.shown());
    std::printf("P32 17 attacks by stdout, stderr and report: %d bytes that a terminal obeys\n",
                obeyed);
    CHECK(obeyed == 0);
}

TEST_CASE("P32: hostile words of the command line are shown as text in every message") {
    ::setenv("NO_COLOR", "1", 1);
    const std::string escape = "\x1b]0;x\x07";
    const Words commands[] = {{"--include", escape, "/bin/true"},
                              {"--hostfile", "/no/" + escape, "/bin/true"},
                              {"--" + escape, "/bin/true"},
                              {"--env", escape + "=1", "/bin/true"},
                              {"--env-file", "/no/" + escape, "/bin/true"},
                              {"--chdir", "/no/" + escape, "/bin/true"},
                              {"--output", "/dev/null/" + escape, "/bin/true"},
                              {"--enable_each_rank_log", "/dev/null/" + escape, "/bin/true"},
                              {"--rdzv_id", escape, "/bin/true"},
                              {"--master_addr", escape, "/bin/true"},
                              {"--set", escape, "x.pt"},
                              {"--config", "/no/" + escape, "x.pt"},
                              {"/no/" + escape},
                              {"/no/" + escape + ".pt"},
                              {"/no/" + escape + ".py"},
                              {"no" + escape}};
    for (const Words& words : commands) {
        PtyProcess job(Words{kDslaunch} + words);
        CHECK(job.wait() > 0);
        INFO(job.shown());
        CHECK(obeyed_bytes(job.shown()) == 0);
        CHECK(!job.shown().empty());
    }
}

TEST_CASE("P32: a link that somebody laid where a log shall be is not followed") {
    for (const std::string name : {"logs/rank-0.log", "metrics.jsonl", "run.json"}) {
        const TemporaryFolder folder;
        std::filesystem::create_directories(folder.path() + "/out/logs");
        std::ofstream(folder.path() + "/victim") << "mine";
        std::filesystem::create_symlink(folder.path() + "/victim", folder.path() + "/out/" + name);
        JobProcess job(folder, {kDslaunch, "--output", folder.path() + "/out", "/bin/echo", "x"});
        const int code = job.wait();
        INFO(name << "\n" << job.err());
        // run.json is written as another file and then renamed, so it replaces the link itself. A
        // program's job has no metrics.
        CHECK(code == (name == "logs/rank-0.log" ? 72 : 0));
        CHECK(folder.read("victim") == "mine");
        if (code != 0) CHECK(mentions(job.err(), name));
    }
}

}  // namespace dslaunch::test
