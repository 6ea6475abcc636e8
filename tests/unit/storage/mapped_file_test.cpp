// Pages of a mapped file: their owner, and pages that are released.
#include "storage/files/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "base/new_files.h"
#include "storage/files/mapped_fault.h"
#include "support/catch.h"
#include "support/child.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

constexpr size_t kPages = 9;

size_t page_bytes() {
    return static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// A file of nine pages and a bit. Each byte is the number of its page.
class PagesFile {
  public:
    PagesFile() {
        std::string content;
        for (size_t page = 0; page < kPages; ++page)
            content.append(page_bytes(), static_cast<char>('a' + page));
        write_file_atomically(path_, content + "tail");
    }
    ~PagesFile() { std::remove(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::string content() const {
        std::ifstream file(path_, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

  private:
    std::string path_ = "/tmp/dsl_mapped_test." + std::to_string(::getpid());
};

char* writable(const MappedFile& file) {
    return reinterpret_cast<char*>(const_cast<std::byte*>(file.bytes().data()));
}

// Reads every page, so that nothing is optimized away.
void touch(const MappedFile& file) {
    for (size_t at = 0; at < file.bytes().size(); at += page_bytes())
        static_cast<void>(*static_cast<const volatile std::byte*>(file.bytes().data() + at));
}

}  // namespace

TEST_CASE("what is written to a copy-on-write mapping stays there and never reaches the file") {
    const PagesFile pages;
    const std::string before = pages.content();
    const MappedFile file(pages.path(), MapMode::kCopyOnWrite);
    writable(file)[0] = 'Z';
    CHECK(std::to_integer<char>(file.bytes()[0]) == 'Z');
    CHECK(pages.content() == before);
    const MappedFile second(pages.path(), MapMode::kCopyOnWrite);
    CHECK(std::to_integer<char>(second.bytes()[0]) == 'a');
}

TEST_CASE("pages that were read are given back, pages that were written are kept") {
    const PagesFile pages;
    const MappedFile file(pages.path(), MapMode::kCopyOnWrite);
    const auto page = static_cast<int64_t>(page_bytes());
    touch(file);
    // The tail is not a whole page.
    CHECK(file.release_unwritten(file.bytes()).value == page * static_cast<int64_t>(kPages));
    CHECK(file.release_unwritten(file.bytes()).value == 0);
    touch(file);
    writable(file)[3 * page_bytes() + 5] = 'Z';
    writable(file)[8 * page_bytes()] = 'Y';
    CHECK(file.release_unwritten(file.bytes()).value == page * 7);
    CHECK(writable(file)[3 * page_bytes() + 5] == 'Z');
    CHECK(writable(file)[8 * page_bytes()] == 'Y');
    CHECK(writable(file)[4 * page_bytes()] == 'e');
}

TEST_CASE("a part gives back only the pages that lie in it whole") {
    const PagesFile pages;
    const MappedFile file(pages.path(), MapMode::kCopyOnWrite);
    const auto page = static_cast<int64_t>(page_bytes());
    touch(file);
    CHECK(file.release_unwritten(file.bytes().subspan(1, 3 * page_bytes())).value == page * 2);
    CHECK(file.release_unwritten(file.bytes().subspan(1, page_bytes() - 1)).value == 0);
    CHECK(file.release_unwritten(file.bytes().subspan(7, 0)).value == 0);
}

TEST_CASE("discarded pages have the file's content again") {
    const PagesFile pages;
    const MappedFile file(pages.path(), MapMode::kCopyOnWrite);
    for (size_t i = 0; i < kPages; ++i) writable(file)[i * page_bytes()] = 'Z';
    file.discard(file.bytes().subspan(page_bytes(), 2 * page_bytes() + 1));
    std::string first;
    for (size_t i = 0; i < kPages; ++i) first += writable(file)[i * page_bytes()];
    CHECK(first == "ZbcZZZZZZ");
}

TEST_CASE("A mapped file that is cut off ends the process with its name, offset and code") {
    for (const ExitCode code : {ExitCode::kCheckpoint, ExitCode::kInput}) {
        const PagesFile file;
        const test::ChildResult child = test::in_child([&] {
            const MappedFile other(file.path());  // lies beside it
            MappedFile first(file.path());
            if (code != ExitCode::kInput) set_fault_code(first.bytes(), code);
            const MappedFile mapped = std::move(first);
            if (::truncate(file.path().c_str(), static_cast<off_t>(page_bytes())) != 0)
                return std::string("it cannot be cut off");
            volatile std::byte read = mapped.bytes()[0];
            read = mapped.bytes()[3 * page_bytes() + 5];
            return fmt::format("read {}", static_cast<int>(read));
        });
        const std::string& said = child.err;
        INFO(said << child.text);
        CHECK(child.ended_well);
        CHECK(child.exit_code == static_cast<int>(code));
        CHECK(said.find(file.path()) != std::string::npos);
        CHECK(said.find(fmt::format("at offset {}:", 3 * page_bytes() + 5)) != std::string::npos);
    }
}

TEST_CASE("A fault that is no mapping's ends the process by the signal, as before") {
    const PagesFile file;
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGBUS, SIG_DFL);
        static_cast<void>(MappedFile(file.path()));
        const UniqueFd fd(::open(file.path().c_str(), O_RDONLY));
        void* own = ::mmap(nullptr, page_bytes(), PROT_READ, MAP_SHARED, fd.get(), 0);
        if (::truncate(file.path().c_str(), 0) != 0) ::_exit(1);
        ::_exit(*static_cast<volatile char*>(own));
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGBUS);
}
