#include "runtime/cli/extend_request.h"

#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_URL 1000
#define MAX_CONFIG (1u << 20)

void hutch_extend_request_done(struct extend_request *request)
{
    hutch_requirement_list_done(&request->pip);
    hutch_requirement_list_done(&request->wheel_files);
    hutch_npm_packages_done(&request->npm);
    hutch_debian_packages_done(&request->apt);
    free(request->apt_sources);
    free(request->index);
    free(request->trusted);
    free(request->wheel_dir);
    free(request->npm_dir);
    *request = (struct extend_request)EXTEND_REQUEST_INIT;
}

bool hutch_extend_request_is_empty(const struct extend_request *request)
{
    return request->pip.n == 0 && request->wheel_files.n == 0 && hutch_extend_request_kind(request) == EXTEND_PIP;
}

enum extend_kind hutch_extend_request_kind(const struct extend_request *request)
{
    return request->apt.n > 0 ? EXTEND_APT : request->npm_dir || request->npm.n > 0 ? EXTEND_NPM : EXTEND_PIP;
}

bool hutch_extend_request_needs_network(const struct extend_request *request)
{
    return !request->index || request->index[0];
}

/* --- where from ------------------------------------------------------------------------------------------------- */

static int set_index(struct extend_request *request, const char *url, const char *what, struct hutch_err *err)
{
    size_t len = strlen(url);

    if ((strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) || len > MAX_URL)
        return hutch_err_set(err, 0, "%s: '%.80s' is no URL that begins with https:// or http://", what, url);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)url[i] <= ' ' || (unsigned char)url[i] >= 127)
            return hutch_err_set(err, 0, "%s: '%.80s' has a character that no URL has", what, url);
    request->index = strdup(url);
    return request->index ? 0 : hutch_err_set(err, ENOMEM, "take an index");
}

/* The first of @names that the environment has, or NULL. */
static const char *find_variable(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *value = getenv(names[i]);

        if (value && value[0])
            return names[i];
    }
    return NULL;
}

/* What would have pip look elsewhere, and is not obeyed, must not be passed over: a package of the same name somewhere
 * else may be a stranger's. */
static int refuse_variables(struct hutch_err *err)
{
    static const char *const names[] = { "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONSTRAINT",
                                         "PIP_CLIENT_CERT", "PIP_PROXY" };
    const char *name = find_variable(names, ARRAY_SIZE(names));

    return !name ? 0 : hutch_err_set(err, 0, "the environment has %s, which hutch does not obey: --index URL or "
                                             "--wheels DIR says where packages come from (PIP_INDEX_URL and "
                                             "PIP_TRUSTED_HOST are obeyed)", name);
}

/* A line that begins with one of pip's words for a place. */
static bool names_index(const char *text)
{
    static const char *const words[] = { "index-url", "extra-index-url", "find-links", "no-index", "index_url",
                                         "extra_index_url", "find_links", "no_index" };

    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *at = line + strspn(line, " \t");

        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
            if (strncmp(at, words[i], strlen(words[i])) == 0)
                return true;
    }
    return false;
}

/* A line of npm's that has "registry" before its '=', also "@scope:registry". */
static bool names_registry(const char *text)
{
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *at = line + strspn(line, " \t"), *word = strstr(at, "registry");

        if (*at != '#' && *at != ';' && word && word < at + strcspn(at, "=\n"))
            return true;
    }
    return false;
}

static int refuse_config(const char *dir, const char *name, bool (*names_place)(const char *text),
                         const char *instead, struct hutch_err *err)
{
    auto_free char *path = NULL, *text = NULL;
    struct hutch_err ignored;
    auto_fd fd = -1;
    size_t len;

    if (!dir || !dir[0])
        return 0;
    if (asprintf(&path, "%s%s", dir, name) < 0) {
        path = NULL;
        return hutch_err_set(err, ENOMEM, "look for the configuration");
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || hutch_fd_slurp(fd, MAX_CONFIG, path, &text, &len, &ignored) < 0 || !names_place(text))
        return 0;
    return hutch_err_set(err, 0, "'%s' says where packages are to be found, which hutch does not read: say it with %s",
                         path, instead);
}

static int refuse_pip_config(const char *dir, const char *name, struct hutch_err *err)
{
    return refuse_config(dir, name, names_index, "--index URL, --wheels DIR or PIP_INDEX_URL", err);
}

static int refuse_pip_configs(struct hutch_err *err)
{
    const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME"), *own = getenv("PIP_CONFIG_FILE");

    if (own && own[0])
        return strcmp(own, "/dev/null") == 0 ? 0 : refuse_pip_config(own, "", err);
    if (refuse_pip_config("/etc", "/pip.conf", err) < 0 || refuse_pip_config(home, "/.pip/pip.conf", err) < 0)
        return -1;
    return config && config[0] ? refuse_pip_config(config, "/pip/pip.conf", err)
                               : refuse_pip_config(home, "/.config/pip/pip.conf", err);
}

/* The same for npm, whose names of variables may be in capitals. */
static int refuse_npm_places(struct hutch_err *err)
{
    static const char *const names[] = { "npm_config_registry", "NPM_CONFIG_REGISTRY", "npm_config_userconfig",
                                         "NPM_CONFIG_USERCONFIG", "npm_config_globalconfig",
                                         "NPM_CONFIG_GLOBALCONFIG" };
    static const char instead[] = "--index URL, or in the .npmrc beside a package.json";
    const char *name = find_variable(names, ARRAY_SIZE(names));

    if (name)
        return hutch_err_set(err, 0, "the environment has %s, which hutch does not obey: say where packages come from "
                                     "with %s", name, instead);
    return refuse_config("/etc", "/npmrc", names_registry, instead, err) < 0
               ? -1 : refuse_config(getenv("HOME"), "/.npmrc", names_registry, instead, err);
}

static int set_from_environment(struct extend_request *request, struct hutch_err *err)
{
    const char *index = getenv("PIP_INDEX_URL");

    if (refuse_variables(err) < 0)
        return -1;
    if (index && index[0])
        return set_index(request, index, "PIP_INDEX_URL", err);
    return refuse_pip_configs(err);
}

/* A line of the request, and of what the builder reads, has one path. */
static bool has_control(const char *path)
{
    for (; *path; path++)
        if ((unsigned char)*path < ' ')
            return true;
    return false;
}

static int set_wheels(struct extend_request *request, const char *dir, struct hutch_err *err)
{
    struct stat st;

    request->wheel_dir = realpath(dir, NULL);
    if (!request->wheel_dir || stat(request->wheel_dir, &st) < 0)
        return hutch_err_set(err, errno, "option '--wheels': look at '%s'", dir);
    if (!S_ISDIR(st.st_mode))
        return hutch_err_set(err, ENOTDIR, "option '--wheels': '%s'", dir);
    if (strstr(request->wheel_dir, ":/") || has_control(request->wheel_dir))
        return hutch_err_set(err, 0, "option '--wheels': the path '%.200s' has ':/' or a control character in it, "
                                     "which no volume may have", dir);
    return 0;
}

static bool ends_in(const char *text, const char *ending)
{
    size_t len = strlen(text), n = strlen(ending);

    return len > n && strcmp(text + len - n, ending) == 0;
}

/* A word that could be either is the file, where that is there. */
static bool is_npm_package(const char *what)
{
    struct stat st;

    if (what[0] != '@' && stat(what, &st) == 0)
        return false;
    return hutch_npm_is_package(what) || (!strchr(what, '/') && !ends_in(what, ".json"));
}

int hutch_extend_request_add_npm_words(struct extend_request *request, const char *path, struct hutch_err *err)
{
    auto_free char *real = realpath(path, NULL);
    auto_free char *file = NULL;
    struct stat st;
    char *slash;

    if (is_npm_package(path))
        return hutch_npm_packages_add(&request->npm, path, err) < 0 ? hutch_err_wrap(err, "option '--npm'") : 0;
    if (request->npm_dir)
        return hutch_err_set(err, 0, "option '--npm': one package.json makes a layer, and '%s' is another one", path);
    if (!real || stat(real, &st) < 0)
        return hutch_err_set(err, errno, "option '--npm': look at '%s'", path);
    slash = strrchr(real, '/');
    if (!S_ISDIR(st.st_mode) && strcmp(slash, "/package.json") != 0)
        return hutch_err_set(err, 0, "option '--npm': '%s' is neither a package.json nor a directory with one", path);
    if (!S_ISDIR(st.st_mode))
        *(slash == real ? slash + 1 : slash) = '\0';
    if (strstr(real, ":/") || has_control(real))
        return hutch_err_set(err, 0, "option '--npm': the path '%.200s' has ':/' or a control character in it, which "
                                     "no volume may have", path);
    if (asprintf(&file, "%s/package.json", real) < 0) {
        file = NULL;
        return hutch_err_set(err, ENOMEM, "take '%s'", path);
    }
    if (stat(file, &st) < 0)
        return hutch_err_set(err, errno, "option '--npm': look at '%s'", file);
    request->npm_dir = real;
    real = NULL;
    return 0;
}

/* apt's sources are the host's own, or what rootfs/debian-sources.sh reads instead of them. */
static int set_apt(struct extend_request *request, const struct extend_sources *sources, struct hutch_err *err)
{
    const char *given = getenv("HUTCH_APT_SOURCES");
    const char *other = sources->index         ? "--index"
                        : sources->wheels      ? "--wheels"
                        : sources->allow_build ? "--allow-build"
                                               : NULL;

    if (other)
        return hutch_err_set(err, 0, "option '%s' is for packages of Python and Node; Debian's come from where apt on "
                                     "this machine has them, or from the file of sources that HUTCH_APT_SOURCES names",
                             other);
    if (!given || !given[0])
        return 0;
    request->apt_sources = realpath(given, NULL);
    return request->apt_sources ? 0 : hutch_err_set(err, errno, "HUTCH_APT_SOURCES: look at '%.200s'", given);
}

int hutch_extend_request_set_sources(struct extend_request *request, const struct extend_sources *sources,
                                     struct hutch_err *err)
{
    const char *trusted = getenv("PIP_TRUSTED_HOST");

    if (sources->is_apt)
        return set_apt(request, sources, err);

    request->allow_build = sources->allow_build;
    if (sources->wheels && set_wheels(request, sources->wheels, err) < 0)
        return -1;
    if (sources->is_npm && !request->npm_dir && !sources->index && sources->wheels)
        return hutch_err_set(err, 0, "option '--wheels' is for packages of Python; those of Node come from a registry "
                                     "(--index URL), or from archives (.tgz) beside a package.json");
    if (sources->index && strcmp(sources->index, "none") != 0)
        return set_index(request, sources->index, "option '--index'", err);
    if (sources->wheels || sources->index) {
        request->index = strdup("");
        return request->index ? 0 : hutch_err_set(err, ENOMEM, "take an index");
    }
    if (sources->is_npm) /* what is said to pip is not said to npm */
        return refuse_npm_places(err);
    if (trusted && trusted[0] && !(request->trusted = strdup(trusted)))
        return hutch_err_set(err, ENOMEM, "take PIP_TRUSTED_HOST");
    return set_from_environment(request, err);
}

/* --- what ------------------------------------------------------------------------------------------------------- */

static int add_wheel(struct extend_request *request, const char *path, struct hutch_err *err)
{
    auto_free char *real = realpath(path, NULL);
    char **bigger;
    struct stat st;

    if (!real || stat(real, &st) < 0)
        return hutch_err_set(err, errno, "look at the wheel '%s'", path);
    if (!S_ISREG(st.st_mode))
        return hutch_err_set(err, 0, "the wheel '%s' is no file", path);
    if (!ends_in(real, ".whl") || strpbrk(strrchr(real, '/'), " \t\"'#\\:") || strstr(real, ":/") || has_control(real))
        return hutch_err_set(err, 0, "the wheel '%s' has a name that no wheel has", path);
    if (request->wheel_files.n == REQUIREMENT_MAX)
        return hutch_err_set(err, 0, "more than %d wheels", REQUIREMENT_MAX);
    bigger = reallocarray(request->wheel_files.texts, request->wheel_files.n + 1, sizeof(*bigger));
    if (!bigger)
        return hutch_err_set(err, ENOMEM, "list the wheels");
    request->wheel_files.texts = bigger;
    bigger[request->wheel_files.n++] = real;
    real = NULL;
    return 0;
}

static int add_file(struct extend_request *request, const char *path, struct hutch_err *err)
{
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    auto_free char *text = NULL;
    size_t len;

    if (fd < 0)
        return hutch_err_set(err, errno, "open the requirements '%s'", path);
    if (hutch_fd_slurp(fd, REQUIREMENT_MAX_FILE, path, &text, &len, err) < 0 ||
        hutch_requirement_add_file(&request->pip, text, len, err) < 0)
        return hutch_err_wrap(err, "'%s'", path);
    return 0;
}

int hutch_extend_request_add_pip(struct extend_request *request, const char *what, struct hutch_err *err)
{
    if (what[0] == '=')
        return hutch_requirement_add(&request->pip, what + 1, strlen(what + 1), err);
    if (ends_in(what, ".whl") && !strstr(what, "://"))
        return add_wheel(request, what, err);
    return ends_in(what, ".txt") ? add_file(request, what, err) : hutch_requirement_add_words(&request->pip, what, err);
}

int hutch_extend_request_add_apt(struct extend_request *request, const char *what, struct hutch_err *err)
{
    return hutch_debian_packages_add(&request->apt, what, err);
}

int hutch_extend_request_add_npm(struct extend_request *request, const struct npm_packages *packages,
                                 struct hutch_err *err)
{
    auto_free char *words = hutch_npm_packages_print(packages, err);

    return words ? hutch_npm_packages_add(&request->npm, words, err) : -1;
}

/* --- as a text -------------------------------------------------------------------------------------------------- */

/* Not by hutch_text_addf(), which cuts what is long: two requests would be one. */
static void add_line(struct text_buffer *t, const char *word, const char *text)
{
    hutch_text_add_string(t, word);
    hutch_text_add_string(t, text);
    hutch_text_add_string(t, "\n");
}

static int add_stat(struct text_buffer *t, const char *what, int dirfd, const char *name, struct hutch_err *err)
{
    struct stat st;

    if (fstatat(dirfd, name, &st, 0) < 0)
        return hutch_err_set(err, errno, "look at '%s'", name);
    add_line(t, what, name);
    hutch_text_addf(t, "size %" PRId64 " time %" PRId64 ".%09ld\n", (int64_t)st.st_size, (int64_t)st.st_mtim.tv_sec,
                    st.st_mtim.tv_nsec);
    return 0;
}

static int is_package(const struct dirent *entry)
{
    return ends_in(entry->d_name, ".whl") || ends_in(entry->d_name, ".tar.gz") ||
           ends_in(entry->d_name, ".zip") || ends_in(entry->d_name, ".tgz");
}

static int add_directory(struct text_buffer *t, const char *path, struct hutch_err *err)
{
    auto_fd fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent **entries = NULL;
    int n = fd < 0 ? -1 : scandirat(fd, ".", &entries, is_package, alphasort), rc = 0;

    if (n < 0)
        return hutch_err_set(err, errno, "read the directory '%s'", path);
    add_line(t, "directory ", path);
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = add_stat(t, "wheel ", fd, entries[i]->d_name, err);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int add_npm(struct text_buffer *t, const char *dir, struct hutch_err *err)
{
    static const char *const names[] = { "package.json", "package-lock.json", "npm-shrinkwrap.json", ".npmrc" };
    auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s'", dir);
    add_line(t, "npm ", dir);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if ((i == 0 || faccessat(fd, names[i], F_OK, 0) == 0) && add_stat(t, "file ", fd, names[i], err) < 0)
            return -1;
    return add_directory(t, dir, err);
}

char *hutch_extend_request_print(const struct extend_request *request, const char *base, struct hutch_err *err)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    int rc = 0;
    char *text;

    hutch_text_add_string(&t, "hutch-request 1\n");
    add_line(&t, "base sha256:", base);
    add_line(&t, "index ", request->index ? request->index : "default");
    add_line(&t, "trusted ", request->trusted ? request->trusted : "none");
    add_line(&t, "build ", request->allow_build ? "yes" : "no");
    for (size_t i = 0; i < request->pip.n; i++)
        add_line(&t, "pip ", request->pip.texts[i]);
    for (size_t i = 0; rc == 0 && i < request->wheel_files.n; i++)
        rc = add_stat(&t, "wheel ", AT_FDCWD, request->wheel_files.texts[i], err);
    if (rc == 0 && request->wheel_dir)
        rc = add_directory(&t, request->wheel_dir, err);
    for (size_t i = 0; i < request->npm.n; i++) {
        add_line(&t, "npm-package ", request->npm.items[i].name);
        add_line(&t, "range ", request->npm.items[i].range);
    }
    if (rc == 0 && request->npm_dir)
        rc = add_npm(&t, request->npm_dir, err);
    for (size_t i = 0; i < request->apt.n; i++)
        add_line(&t, "apt ", request->apt.texts[i]);
    if (rc == 0 && request->apt_sources)
        rc = add_stat(&t, "sources ", AT_FDCWD, request->apt_sources, err);
    text = rc == 0 ? hutch_text_take(&t, NULL) : NULL;
    if (rc < 0)
        hutch_text_done(&t);
    else if (!text)
        hutch_err_set(err, ENOMEM, "write down what is asked for");
    return text;
}
