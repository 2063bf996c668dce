"use strict";(()=>{document.documentElement.dataset.page="dpexec";})();
