#include "base/log.h"

#include "support/catch.h"

namespace dslaunch {

TEST_CASE("a log line is told from other text, with its level and what it says") {
    struct Row {
        const char* line;
        LogLevel level;
        const char* said;
    };
    const Row rows[] = {
        {"12:00:00.123 model: m.pt: 3 parameters", LogLevel::kInfo, "model: m.pt: 3 parameters"},
        {"12:00:00.123 warning data: few", LogLevel::kWarn, "data: few"},
        {"23:59:59.999 error train: bad", LogLevel::kError, "train: bad"},
        {"00:00:00.000 detail model: m.pt", LogLevel::kDetail, "model: m.pt"},
        {"00:00:00.000 debug memory: 1", LogLevel::kDebug, "memory: 1"},
        {"00:00:00.000 detail: 1", LogLevel::kInfo, "detail: 1"},
    };
    for (const Row& row : rows) {
        INFO(row.line);
        const std::optional<LoggedLine> read = read_logged(row.line);
        REQUIRE(read);
        CHECK(read->level == row.level);
        CHECK(read->said == row.said);
    }
    for (const char* other :
         {"", "12:00:00.123", "12:00:00.123 ", "12:00:00.123 no component", "12:00:00 model: m",
          "x2:00:00.123 model: m", "12:00:00.123 : m", "12:00:00.123 a b: m", "model: m"}) {
        INFO(other);
        CHECK(!read_logged(other));
    }
}

TEST_CASE("details are below info and above debug") {
    set_log_level(LogLevel::kInfo);
    CHECK(log_enabled(LogLevel::kInfo));
    CHECK(!log_enabled(LogLevel::kDetail));
    set_log_level(LogLevel::kDetail);
    CHECK(log_enabled(LogLevel::kDetail));
    CHECK(!log_enabled(LogLevel::kDebug));
    set_log_level(LogLevel::kDebug);
    CHECK(log_enabled(LogLevel::kDetail));
    CHECK(log_enabled(LogLevel::kDebug));
    set_log_level(LogLevel::kInfo);
}

}  // namespace dslaunch
