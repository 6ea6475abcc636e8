#include "launch/transport/ssh/ssh_keywords.h"

#include <algorithm>
#include <span>

namespace dslaunch::launch {
namespace {

constexpr std::string_view kUsed[] = {
    "addressfamily",
    "bindaddress",
    "certificatefile",
    "ciphers",
    "compression",
    "connecttimeout",
    "globalknownhostsfile",
    "host",
    "hostkeyalgorithms",
    "hostkeyalias",
    "hostname",
    "identitiesonly",
    "identityagent",
    "identityfile",
    "ignoreunknown",
    "include",
    "kexalgorithms",
    "macs",
    "match",
    "port",
    "proxycommand",
    "proxyjump",
    "pubkeyacceptedalgorithms",
    "pubkeyacceptedkeytypes",
    "rekeylimit",
    "tag",
    "user",
    "userknownhostsfile",
    "requiredrsasize",
};

constexpr std::string_view kIgnored[] = {
    // Questions, and what is shown or logged: nobody is asked, errors are ours.
    "addkeystoagent",
    "batchmode",
    "escapechar",
    "enableescapecommandline",
    "fingerprinthash",
    "loglevel",
    "logverbose",
    "numberofpasswordprompts",
    "kbdinteractiveauthentication",
    "kbdinteractivedevices",
    "challengeresponseauthentication",
    "passwordauthentication",
    "syslogfacility",
    "visualhostkey",
    "obscurekeystroketiming",
    "skeyauthentication",
    "tisauthentication",
    "versionaddendum",
    "warnweakcrypto",
    // Host keys are always checked, against files that are never written.
    "checkhostip",
    "hashknownhosts",
    "nohostauthenticationforlocalhost",
    "stricthostkeychecking",
    "updatehostkeys",
    "casignaturealgorithms",
    "verifyhostkeydns",
    // Sharing, sessions and what they carry: each host has one connection with one command.
    "controlmaster",
    "controlpath",
    "controlpersist",
    "forkafterauthentication",
    "localcommand",
    "permitlocalcommand",
    "remotecommand",
    "requesttty",
    "sendenv",
    "setenv",
    "sessiontype",
    "stdinnull",
    "forwardagent",
    "forwardx11",
    "forwardx11timeout",
    "forwardx11trusted",
    "xauthlocation",
    "clearallforwardings",
    "dynamicforward",
    "exitonforwardfailure",
    "gatewayports",
    "localforward",
    "permitremoteopen",
    "remoteforward",
    "streamlocalbindmask",
    "streamlocalbindunlink",
    "tunnel",
    "tunneldevice",
    "channeltimeout",
    // Launcher and agent notice each other's silence themselves.
    "serveralivecountmax",
    "serveraliveinterval",
    "tcpkeepalive",
    "keepalive",
    "ipqos",
    "connectionattempts",
    // Read by `canonicalizehostname` alone, which is refused, or by nothing any more.
    "canonicaldomains",
    "canonicalizefallbacklocal",
    "canonicalizemaxdots",
    "canonicalizepermittedcnames",
    "cipher",
    "protocol",
    "useprivilegedport",
    "useroaming",
    "usersh",
    "fallbacktorsh",
    "globalknownhostsfile2",
    "userknownhostsfile2",
    "debianbanner",
};

constexpr std::string_view kOtherCredentials[] = {
    "gssapiauthentication",
    "gssapiclientidentity",
    "gssapidelegatecredentials",
    "gssapikexalgorithms",
    "gssapikeyexchange",
    "gssapirenewalforcesrekey",
    "gssapiserveridentity",
    "gssapitrustdns",
    "enablesshkeysign",
    "hostbasedauthentication",
    "hostbasedacceptedalgorithms",
    "hostbasedkeytypes",
    "rhostsrsaauthentication",
    "rsaauthentication",
    "dsaauthentication",
    "afstokenpassing",
    "kerberosauthentication",
    "securitykeyprovider",
};

constexpr std::string_view kRefused[] = {
    "bindinterface",  "canonicalizehostname", "knownhostscommand",
    "pkcs11provider", "smartcarddevice",      "preferredauthentications",
    "proxyusefdpass", "pubkeyauthentication", "revokedhostkeys",
};

bool holds(std::span<const std::string_view> list, std::string_view word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

SshKeyword classify_ssh_keyword(std::string_view keyword) {
    if (holds(kUsed, keyword)) return SshKeyword::kUsed;
    if (holds(kIgnored, keyword)) return SshKeyword::kIgnored;
    if (holds(kOtherCredentials, keyword)) return SshKeyword::kOtherCredential;
    if (holds(kRefused, keyword) || keyword == "refuseconnection") return SshKeyword::kRefused;
    return SshKeyword::kUnknown;
}

bool asks_for_nothing(std::string_view keyword, std::string_view value) {
    if (keyword == "pubkeyauthentication") return value != "no" && value != "false";
    if (keyword == "preferredauthentications") {
        return value.find("publickey") != std::string_view::npos;
    }
    if (keyword == "refuseconnection") return false;
    return value == "no" || value == "none" || value == "false";
}

}  // namespace dslaunch::launch
