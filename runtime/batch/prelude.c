#include "runtime/batch/prelude.h"

#include "runtime/batch/sample.h"
#include "runtime/batch/task.h"

#include <string.h>

static const char prelude[] =
    "from string import *\nfrom re import *\nfrom datetime import *\nfrom collections import *\nfrom heapq import *\n"
    "from bisect import *\nfrom copy import *\nfrom math import *\nfrom random import *\nfrom statistics import *\n"
    "from itertools import *\nfrom functools import *\nfrom operator import *\nfrom io import *\nfrom sys import *\n"
    "from json import *\nfrom builtins import *\nfrom typing import *\nimport string\nimport re\nimport datetime\n"
    "import collections\nimport heapq\nimport bisect\nimport copy\nimport math\nimport random\nimport statistics\n"
    "import itertools\nimport functools\nimport operator\nimport io\nimport sys\nimport json\n"
    "sys.setrecursionlimit(50000)\n";

/* A future import must be a program's first statement; a program that has one has the other imports too. */
const char *hutch_batch_prelude(const struct batch_task *task, const struct batch_sample *sample)
{
    static const char future[] = "from __future__";
    bool has_future = memmem(sample->program.text, sample->program.len, future, strlen(future)) != NULL;

    return task->with_prelude && !has_future ? prelude : "";
}
