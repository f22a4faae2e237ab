"""Well-known tools and how they are spelled: languages, databases, frameworks, editors, clouds, office and design."""

from __future__ import annotations

from langchain_ctxbudget.core.rules.naming_words import word_set

# Recognised in any case: no English word looks like these.
_ANY_CASE = """
PostgreSQL=postgres|postgresql|psql, MySQL, SQLite, MariaDB, MongoDB=mongo|mongodb, Redis, Cassandra, DynamoDB,
Elasticsearch, OpenSearch, ClickHouse, DuckDB, BigQuery, Redshift, CockroachDB, Neo4j, InfluxDB, Supabase,
Firebase, Firestore, Qdrant, Pinecone, Weaviate, Milvus, pgvector, FAISS, ChromaDB, Databricks,
Kubernetes=kubernetes|k8s, Docker, Docker Compose=docker compose|docker-compose, Podman, Terraform, OpenTofu,
Ansible, Pulumi, Jenkins, Argo CD=argo cd|argocd, GitHub, GitHub Actions, GitHub Copilot, GitLab, GitLab CI,
Bitbucket, CircleCI, Grafana, Prometheus, Datadog, Splunk, PagerDuty, Kibana, Logstash, Kafka=kafka|apache kafka,
RabbitMQ, Celery, Airflow=airflow|apache airflow, Dagster, dbt, Snowflake, Apache Spark, PySpark, Hadoop, nginx,
HAProxy, Istio, Traefik, AWS, AWS Lambda, Amazon S3, GCP, Google Cloud, Google Cloud Run, Azure, Azure DevOps,
Vercel, Netlify, Heroku, Cloudflare, DigitalOcean, Hetzner, OpenShift, Rancher, Proxmox, VMware, VirtualBox,
Python, JavaScript, TypeScript, Golang, Kotlin, Scala, Haskell, Erlang, Clojure, OCaml, Perl, Fortran, COBOL,
MATLAB, C++, C#, F#, Objective-C, PHP, Bash, PowerShell, zsh, tmux, vim=vim, Neovim=neovim|nvim, Emacs, VS
Code=vs code|vscode|visual studio code, Visual Studio, PyCharm, IntelliJ=intellij|intellij idea, WebStorm, Xcode,
Android Studio, Sublime Text, JupyterLab, Jupyter=jupyter|jupyter notebook|jupyter notebooks, RStudio, Google
Colab, Django, Flask, FastAPI, Ruby on Rails, Laravel, Symfony, Spring Boot, Node.js=node.js|nodejs,
Next.js=next.js|nextjs, Nuxt, Vue.js=vue.js|vuejs|vue, React Native, React.js=reactjs|react.js, Angular, Svelte,
SvelteKit, jQuery, Redux, Tailwind=tailwind|tailwindcss|tailwind css, webpack, Vite, Deno, Bun.js=bun.js, npm,
pnpm, Homebrew, Flutter, Express.js=express.js, NestJS, GraphQL, gRPC, Prisma, SQLAlchemy, Hibernate, Strapi,
Drupal, Joomla, NumPy, pandas=pandas, SciPy, scikit-learn=scikit-learn|sklearn, TensorFlow, PyTorch, Keras,
Hugging Face, LangChain, LangGraph, LlamaIndex, Ollama, OpenCV, spaCy, NLTK, matplotlib, Plotly, Streamlit,
Gradio, Tableau, Power BI, Looker, Metabase, Superset, Stata, SPSS, pytest, Selenium, Cypress, Playwright,
Postman, Jest, JUnit, SonarQube, Sentry, Figma, Photoshop, Adobe Photoshop, Adobe Illustrator, Lightroom,
InDesign, Premiere Pro, After Effects, Final Cut Pro, DaVinci Resolve, GIMP, Inkscape, Canva, Blender, AutoCAD,
SketchUp, SolidWorks, Fusion 360, Ableton, Ableton Live, Logic Pro, GarageBand, Unreal Engine, Godot, Arduino,
Raspberry Pi, Home Assistant, Jira, Trello, Asana, ClickUp, Basecamp, Airtable, Todoist, Evernote, Obsidian,
Confluence, Miro, Zapier, IFTTT, Google Docs, Google Sheets, Google Drive, Google Calendar, Google Analytics,
Google Meet, Google Maps, Gmail, Microsoft Teams=microsoft teams|ms teams, Microsoft Word=microsoft word|ms word,
Microsoft Excel=microsoft excel|ms excel, PowerPoint, OneNote, SharePoint, OneDrive, Dropbox, LibreOffice,
LaTeX=latex|overleaf latex, Overleaf, Zotero, Mendeley, Salesforce, HubSpot, Zendesk, Intercom, Mailchimp,
QuickBooks, Xero, Shopify, WordPress, Squarespace, Wix, WooCommerce, WhatsApp, Duolingo, Anki, Strava, YNAB,
1Password, Bitwarden, Calendly, DocuSign, Webflow, Bubble.io, Retool, Ubuntu, Debian, Arch Linux, Fedora, Linux,
macOS, FreeBSD, NixOS, Wireshark, Nagios, OpenTelemetry, Jaeger, Fivetran, Amazon Redshift, Amazon Web Services,
Great Expectations, Rust Analyzer, Helm charts=helm charts, Unity3D, ServiceNow, Fly.io, Codeberg, Workday,
BambooHR, Lucidchart, draw.io, Fitbit, Komoot, Zwift, MyFitnessPal, Letterboxd, Etsy, Patreon, Bandcamp,
SoundCloud, CapCut, Audacity, OBS Studio, Darktable, Lightroom Mobile, FreeCAD, OpenSCAD, KiCad, Tinkercad,
OctoPrint, Mastodon, Bluesky, ggplot2, dplyr, tidyverse, ffmpeg, rsync, curl=curl, tcpdump, ripgrep,
certbot=certbot, restic, rclone, Aseprite, Krita, Kahoot, Backblaze, Backblaze B2, borgbackup, systemd, pip=pip,
conda=conda|miniconda, mypy, ESLint, htmx, esbuild, Vitest, pyenv, WireGuard, Tailscale, Pi-hole, Nextcloud,
Syncthing, Jellyfin, MATLAB Simulink, NVivo, EndNote, JASP, QGIS, ArcGIS, LaTeX Beamer, Typst, Pandoc=pandoc,
Hugging Face Transformers, XGBoost, LightGBM, MLflow, Weights & Biases, Docker Swarm, Ghidra, Burp Suite, Nmap,
Metasploit, Perplexity AI, Midjourney, DaVinci, Excalidraw, Tableau Public, Moodle, Scrivener, Grammarly,
Substack, Goodreads
"""
# Recognised when capitalised inside a sentence.
_CAPITALISED = """
Garmin, Headspace, Audible, Peloton, Kindle, Affinity Designer, Reaper, Cubase, Sibelius, MuseScore, Dorico,
Hugo, Jekyll, Slack, Notion, Excel, Discord, React, Zoom, Java, Ruby, Rails, Illustrator, Outlook, Stripe,
Twilio, Loki, Vault, Consul, Lambda, Cloud Run, Linear, Chrome, Firefox, Unity, Copilot, Cursor, Skype, Lightroom
Classic, Spotify, YouTube, Nomad, Git, Elm, Elixir, Solidity, Raycast, Stata, Windows, Android, iOS, Procreate,
Telegram, Signal
"""
# Recognised where the words around them speak of a tool: "written in Rust", "we use Teams".
_IN_CONTEXT = """
Go, Rust, Swift, R, C, Word, Teams, Spring, Express, Make, Sketch, Access, Spark, Oracle, Julia, Helm, Flux, Ray,
Elm, Dart, Lua, ChatGPT, Claude, Gemini, Siri, Alexa, Bun, Keynote, Pages, Numbers, Sheets, Docs, Notes,
Monday.com, Hive, Premiere, Cursor, Maya, Rhino, Houdini, Pinterest, Instagram, Facebook, LinkedIn, Twitter,
Amazon, Apple, SAP, Nest
"""


def _spellings(text: str) -> dict[tuple[str, ...], str]:
    """Every spelling, in lower-case words, and the name it stands for."""
    found: dict[tuple[str, ...], str] = {}
    for entry in filter(None, map(str.strip, text.replace("\n", " ").split(","))):
        name, _, spellings = entry.partition("=")
        for spelling in {name.lower(), *filter(None, spellings.split("|"))}:
            found[tuple(spelling.split())] = name
    return found


ANY_CASE, CAPITALISED, IN_CONTEXT = map(_spellings, (_ANY_CASE, _CAPITALISED, _IN_CONTEXT))
LOWER_CASE_ONLY_WITH_A_CUE = word_set(
    "latex celery blender snowflake angular scala flask express bash cassandra asana prometheus perl pandas "
    "curl conda pip looker sentry cypress superset jest miro obsidian selenium intercom postman flutter azure "
    "playwright workday"
)
"""Words of the language, or things of the world, when they are not capitalised."""
